"""DAGs to read and to try: Airflow shows them if ``[core] load_examples`` is on."""
