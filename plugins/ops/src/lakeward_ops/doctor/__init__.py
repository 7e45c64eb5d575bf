"""`lakeward doctor`: checks what a service needs in order to run."""
