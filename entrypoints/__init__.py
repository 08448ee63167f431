"""What people and programs touch. Entry points parse, call and show; they decide nothing."""
