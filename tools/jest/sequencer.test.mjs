import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { describe, it } from 'node:test';

const Sequencer = createRequire(import.meta.url)('./sequencer.cjs');
const { LONG_FILES } = Sequencer;
const root = resolve(import.meta.dirname, '../..');

/** A spec file as jest describes it, without a time of an earlier run. */
const aTest = (path, size) => ({
  path,
  context: { config: { cache: false }, hasteFS: { getSize: () => size } },
});
const sortPaths = async (tests) => {
  const sorted = await new Sequencer({}).sort(tests);
  return sorted.map(({ path }) => path);
};

describe('order of spec files', () => {
  it('starts long files first, and large files before small ones', async () => {
    const long = `/x${LONG_FILES[0]}`;
    assert.deepEqual(await sortPaths([aTest('/small', 1), aTest('/large', 9), aTest(long, 2)]), [
      long,
      '/large',
      '/small',
    ]);
  });

  for (const file of LONG_FILES)
    it(`names ${file}, which exists`, () => assert.ok(existsSync(join(root, file))));
});
