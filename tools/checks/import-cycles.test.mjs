import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { describe, it } from 'node:test';
import { findCycles, listEntryPoints, listImports, toImportGraph } from './import-cycles.mjs';

const root = resolve(import.meta.dirname, '../..');
const listFiles = (...patterns) =>
  execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard', ...patterns], {
    cwd: root,
    encoding: 'utf8',
    maxBuffer: 64 * 1024 * 1024,
  })
    .split('\n')
    .filter((file) => file !== '');
const readModules = () =>
  new Map(
    listFiles('*.ts').flatMap((file) => {
      try {
        return [[file, readFileSync(join(root, file), 'utf8')]];
      } catch {
        return []; // deleted, and not committed
      }
    }),
  );
const entryPoints = listEntryPoints(root, listFiles('*/package.json'));

describe('imports of a module', () => {
  for (const { text, names } of [
    { text: `import { a } from './a.js';`, names: ['./a.js'] },
    { text: `import './a.js';`, names: ['./a.js'] },
    { text: `import a, { type B } from './a.js';`, names: ['./a.js'] },
    { text: `import * as a from './a.js';`, names: ['./a.js'] },
    { text: `import {} from './a.js';`, names: ['./a.js'] },
    { text: `import { a, type B } from './a.js';`, names: ['./a.js'] },
    { text: `import { type A, type B } from './a.js';`, names: ['./a.js'] },
    { text: `import type { A } from './a.js';`, names: [] },
    { text: `export { a } from './a.js';`, names: ['./a.js'] },
    { text: `export * from './a.js';`, names: ['./a.js'] },
    { text: `export * as a from './a.js';`, names: ['./a.js'] },
    { text: `export type { A } from './a.js';`, names: [] },
    { text: `export { type A } from './a.js';`, names: ['./a.js'] },
    { text: `export const a = 1; export { a };`, names: [] },
    { text: `const load = async () => (await import('./a.js')).a;`, names: ['./a.js'] },
    { text: `type A = import('./a.js').A;`, names: [] },
    { text: `const text = "import { a } from './a.js';";`, names: [] },
  ])
    it(`are ${names.length} of ${text}`, () => assert.deepEqual(listImports(text), names));
});

describe('cycles of imports', () => {
  const cyclesOf = (modules) => findCycles(toImportGraph(new Map(Object.entries(modules))));

  it('are found over several modules', () =>
    assert.deepEqual(
      cyclesOf({
        'x/start.ts': `import './a.js';`,
        'x/a.ts': `import './y/b.js';`,
        'x/y/b.ts': `export * from '../c.js';`,
        'x/c.ts': `import './a.js';`,
      }),
      [['x/a.ts', 'x/y/b.ts', 'x/c.ts', 'x/a.ts']],
    ));

  it('are found in a module that imports itself', () =>
    assert.deepEqual(cyclesOf({ 'a.ts': `import './a.js';` }), [['a.ts', 'a.ts']]));

  it('two imports of one module are no cycle', () =>
    assert.deepEqual(
      cyclesOf({
        'a.ts': `import './b.js'; import './c.js';`,
        'b.ts': `import './d.js';`,
        'c.ts': `import './d.js';`,
        'd.ts': `import type { A } from './a.js';`,
      }),
      [],
    ));

  it('are found through the entry point of a package', () => {
    const index = 'libs/base/src/index.ts';
    assert.equal(entryPoints.get('@cloudless/base'), index);
    const modules = new Map([
      [index, `export * from './a.js';`],
      ['libs/base/src/a.ts', `import { b } from '@cloudless/base';`],
    ]);
    assert.deepEqual(findCycles(toImportGraph(modules, entryPoints)), [
      [index, 'libs/base/src/a.ts', index],
    ]);
  });

  it('are absent from the modules of the workspace', () => {
    const graph = toImportGraph(readModules(), entryPoints);
    const imports = [...graph.values()].flat();
    assert.ok(imports.length > 2 * graph.size, `only ${imports.length} imports were resolved`);
    assert.deepEqual(
      findCycles(graph).map((files) => files.join(' -> ')),
      [],
    );
  });
});
