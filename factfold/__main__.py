"""`python -m factfold` is the `factfold` command."""

from factfold.cli import main

main()
