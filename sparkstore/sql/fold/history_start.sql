UPDATE {state} SET history_start = {start} WHERE part = 'meta'
