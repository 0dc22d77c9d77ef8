"""What stands around the answers of one chapter: it calls them, and is no judge."""
