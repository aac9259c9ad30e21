#!/usr/bin/env node
import { existsSync } from 'node:fs';

const bundle = new URL('../../../dist/apps/cloudlessctl/main.mjs', import.meta.url);
if (existsSync(bundle)) {
  await import(bundle.href);
} else {
  process.stderr.write('cloudlessctl is not built yet: run "npm start" or "npm run build" first.\n');
  process.exitCode = 1;
}
