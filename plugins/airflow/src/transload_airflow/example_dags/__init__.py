"""DAGs to read and to try, which Airflow shows if ``[core] load_examples`` is on."""
