// The programs that install the packages run on a machine without packages.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { test } from 'node:test';

const root = resolve(import.meta.dirname, '../..');
/** The modules that a module imports before its first line runs; functions may import others. */
const STATIC_IMPORT = /^(?:import|export)\s(?:[^;']*\sfrom\s)?'([^']+)'/gm;

/** Returns the packages that a module needs at its start, each with the file that imports it. */
function listPackages(file, seen = new Set()) {
  if (seen.has(file)) return [];
  seen.add(file);
  return [...readFileSync(file, 'utf8').matchAll(STATIC_IMPORT)].flatMap(([, name]) => {
    if (name.startsWith('node:')) return [];
    if (name.startsWith('.')) return listPackages(join(dirname(file), name), seen);
    return [`${relative(root, file)}: ${name}`];
  });
}

const { scripts } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
const programs = Object.entries(scripts).flatMap(([name, command]) => {
  const [, file] = /^node (\S+\.mjs)/.exec(command) ?? [];
  return file === undefined ? [] : [{ name, file }];
});

for (const { name, file } of [...programs, { name: '', file: 'tools/containers/setup.mjs' }]) {
  test(`${name === '' ? file : `npm run ${name}`} starts without packages`, () => {
    assert.deepEqual(listPackages(join(root, file)), []);
  });
}

test('the check finds a package that a module imports at its start', () => {
  const found = listPackages(join(root, 'tools/bundle/prune-definitions.mjs'));
  assert.ok(found.includes('tools/bundle/prune-definitions.mjs: @bufbuild/protobuf'));
});
