"""The migrations. A module that was released is never changed again."""
