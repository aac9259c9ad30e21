#!/bin/sh
':' //; exec node -- "$0" "$@"
// The line above starts Node when a shell reads it, and is a text and a comment to Node. Node's own options end at "--": without that,
// Node takes options for itself that stand behind the script, such as the --env-file of a workload.
import { existsSync } from 'node:fs';

const bundle = new URL('../../../dist/apps/cloudlessctl/main.mjs', import.meta.url);
if (existsSync(bundle)) {
  await import(bundle.href);
} else {
  process.stderr.write('cloudlessctl is not built yet: run "npm start" or "npm run build" first.\n');
  process.exitCode = 1;
}
