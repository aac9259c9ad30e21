import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';

const require = createRequire(import.meta.url);
const { hashOf, readCached } = require('./code-cache.cjs');
const transform = require('./transform.cjs');
const root = resolve(import.meta.dirname, '../..');

let directory;
beforeEach(() => (directory = mkdtempSync(join(tmpdir(), 'cloudless-code-'))));
afterEach(() => rmSync(directory, { recursive: true, force: true }));

/** The files of the cache, without directories. */
const listFiles = () =>
  readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => join(parentPath, name));

describe('the cache of transformed code', () => {
  const readTwice = (firstKey, secondKey) => {
    let computed = 0;
    const compute = () => `code ${(computed += 1)}`;
    return [readCached(directory, firstKey, compute), readCached(directory, secondKey, compute)];
  };

  it('computes code once for a key', () =>
    assert.deepEqual(readTwice(hashOf('a'), hashOf('a')), ['code 1', 'code 1']));
  it('computes code for each key', () =>
    assert.deepEqual(readTwice(hashOf('a'), hashOf('b')), ['code 1', 'code 2']));
  it('leaves no incomplete file', () => {
    readTwice(hashOf('a'), hashOf('b'));
    assert.equal(listFiles().length, 2);
  });

  for (const { damage, change } of [
    { damage: 'is cut', change: (text) => text.slice(0, -1) },
    { damage: 'is empty', change: () => '' },
    { damage: 'has another byte', change: (text) => text.replace('code', 'coda') },
  ])
    it(`computes code again when its file ${damage}`, () => {
      readCached(directory, hashOf('a'), () => 'code');
      const [file] = listFiles();
      writeFileSync(file, change(readFileSync(file, 'utf8')));
      assert.equal(
        readCached(directory, hashOf('a'), () => 'again'),
        'again',
      );
      assert.equal(
        readCached(directory, hashOf('a'), () => 'never'),
        'again',
      );
    });

  it('gives other hashes for the same characters in other texts', () =>
    assert.notEqual(hashOf('ab', 'c'), hashOf('a', 'bc')));
});

describe('the transform of jest', () => {
  const options = (project, cache = true) => ({
    config: {
      ...{ cache, cacheDirectory: directory },
      cwd: root,
      ...{ rootDir: join(root, project), testMatch: [], testRegex: [], globals: {}, transform: [] },
    },
    ...{ cacheFS: new Map(), supportsStaticESM: true, transformerConfig: {}, instrument: false },
  });
  const file = join(root, 'libs/base/src/example.ts');
  const text = 'export const example = (size: number) => new Map([[size, size]]);\n';

  it('removes types, and takes built-in objects from the module', () => {
    const { code } = transform.process(text, file, options('libs/base'));
    assert.match(code, /^const \{ Map \} = globalThis; export const example = \(size\) => new Map/);
  });

  it('shares code among projects', () => {
    const first = transform.process(text, file, options('libs/base'));
    const [stored, ...others] = listFiles();
    assert.deepEqual(others, []);
    const code = 'export const stored = 1;';
    writeFileSync(stored, `${hashOf(code)}\n${code}`);
    assert.notEqual(first.code, code);
    assert.equal(transform.process(text, file, options('libs/api')).code, code);
  });

  it('keeps CommonJS modules and ES modules apart', () => {
    const esModule = transform.process(text, file, options('libs/base'));
    const commonJs = { ...options('libs/base'), supportsStaticESM: false };
    assert.match(transform.process(text, file, commonJs).code, /exports\.example/);
    assert.equal(transform.process(text, file, options('libs/base')).code, esModule.code);
  });

  it('reads and writes no shared code in a run without cache', () => {
    transform.process(text, file, options('libs/base', false));
    assert.deepEqual(listFiles(), []);
  });

  it('has other keys for another text, file or kind of module, and with coverage', () => {
    const call = { instrument: false, supportsStaticESM: true };
    const keys = [
      transform.getCacheKey(text, file, call),
      transform.getCacheKey(`${text}\n`, file, call),
      transform.getCacheKey(text, `${file}x`, call),
      transform.getCacheKey(text, file, { ...call, instrument: true }),
      transform.getCacheKey(text, file, { ...call, supportsStaticESM: false }),
    ];
    assert.equal(new Set(keys).size, 5);
  });
});
