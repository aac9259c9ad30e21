#!/bin/sh
':' //; exec node -- "$0" "$@"
// A shell runs the line above, which starts Node with this file. Node reads the same line as a
// string and a comment. The "--" ends the options of Node: without it, Node would take an option
// after the script name for its own, such as the --env-file of a workload.
import { existsSync } from 'node:fs';

const bundle = new URL('../../../dist/apps/cloudlessctl/main.mjs', import.meta.url);
if (existsSync(bundle)) {
  await import(bundle.href);
} else {
  process.stderr.write('cloudlessctl is not built yet: run "npm start" or "npm run build" first.\n');
  process.exitCode = 1;
}
