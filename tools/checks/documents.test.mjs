import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { listFiles, findProblems } from './documents.mjs';

/** A small repository in which every reference leads somewhere. */
const sound = {
  'package.json': '{"scripts":{"test":"node x"}}',
  'README.md':
    '# Top\n\nSee [guide](docs/guide.md#set-up-and-run), [here](#top), [out](https://example.org/x) and `libs/store/src/lock.ts`.\n\n```sh\nnpm run test\nnx run store:soak\n```\n',
  'docs/guide.md':
    '# Guide\n\n## Set up, and `run`\n\n[up](../README.md) [code][lock]\n\n[lock]: ../libs/store\n',
  'docs/requirements.md': '# Requirements\n\nCLD-REQ-001\n',
  'libs/store/README.md': '# Store\n\n`lock.ts` and `src/*.ts` decide; `server.js` is of a user.\n',
  'libs/store/package.json': '{"nx":{"targets":{"soak":{}}}}',
  'libs/store/src/lock.ts':
    '// As docs/guide.md#guide says; lock.ts is CLD-REQ-001.\nexport const text = "see docs/guide.md";\n',
};

const listProblems = (changes) => {
  const files = { ...sound, ...changes };
  return findProblems({ files: Object.keys(files), read: (file) => files[file] }).map(
    ({ file, line, message }) => `${file}:${line}: ${message}`,
  );
};

describe('findProblems', () => {
  it('reports nothing when every reference leads somewhere', () => {
    assert.deepEqual(listProblems({}), []);
  });

  const planted = [
    {
      name: 'a link to a file that does not exist',
      change: { 'README.md': '# Top\n\nsee\n[a\nguide](docs/gone.md)\n' },
      expected: 'README.md:5: docs/gone.md does not exist',
    },
    {
      name: 'a link to a heading that does not exist',
      change: { 'README.md': '[guide](docs/guide.md#gone)\n' },
      expected: 'README.md:1: docs/guide.md has no heading #gone',
    },
    {
      name: 'a link to a missing heading of the same document',
      change: { 'README.md': '# Top\n\n[below](#gone)\n' },
      expected: 'README.md:3: README.md has no heading #gone',
    },
    {
      name: 'a link out of the repository',
      change: { 'README.md': '[x](../elsewhere.md)\n' },
      expected: 'README.md:1: ../elsewhere.md leads out of the repository',
    },
    {
      name: 'a path in code of a document',
      change: { 'README.md': 'see `libs/store/src/gone.ts`\n' },
      expected: 'README.md:1: libs/store/src/gone.ts does not exist',
    },
    {
      name: 'a path in a fenced block',
      change: { 'README.md': '```sh\nnode tools/gone.mjs\n```\n' },
      expected: 'README.md:2: tools/gone.mjs does not exist',
    },
    {
      name: 'a file name that the library of a README does not have',
      change: { 'libs/store/README.md': '`gone.ts` decides\n' },
      expected: 'libs/store/README.md:1: no file gone.ts below libs/store',
    },
    {
      name: 'a function that the file of a walk does not have',
      change: { 'README.md': '| 1 | `libs/store/src/lock.ts` | `text`, `Lock.gone` | why |\n' },
      expected:
        'README.md:1: libs/store/src/lock.ts has no Lock\nREADME.md:1: libs/store/src/lock.ts has no gone',
    },
    {
      name: 'a path in a comment',
      change: { 'libs/store/src/lock.ts': '/**\n * See libs/store/src/gone.ts.\n */\n' },
      expected: 'libs/store/src/lock.ts:2: libs/store/src/gone.ts does not exist',
    },
    {
      name: 'a heading in a text of a program',
      change: { 'libs/store/src/lock.ts': 'throw new Error("see docs/guide.md#gone");\n' },
      expected: 'libs/store/src/lock.ts:1: docs/guide.md has no heading #gone',
    },
    {
      name: 'an npm script',
      change: { 'docs/guide.md': '# Guide\n\n## Set up, and run\n\nnpm run gone\n' },
      expected: 'docs/guide.md:5: there is no npm script gone',
    },
    {
      name: 'an Nx target',
      change: { 'libs/store/README.md': '`nx run store:gone`\n' },
      expected: 'libs/store/README.md:1: there is no Nx target store:gone',
    },
    {
      name: 'a spec that no pattern finds',
      change: { 'libs/store/README.md': '`nx test store -- gone`\n' },
      expected: 'libs/store/README.md:1: no spec of store matches gone',
    },
    {
      name: 'a library that the table of libraries lacks',
      change: {
        'ARCHITECTURE.md': '| type | libraries |\n| --- | --- |\n| port | `other` |\n',
        'libs/store/package.json': '{"nx":{"tags":["type:port"],"targets":{"soak":{}}}}',
      },
      expected: 'ARCHITECTURE.md:3: the row of type:port has no store',
    },
    {
      name: 'a requirement id',
      change: { 'libs/store/src/lock.ts': '// CLD-REQ-999\n' },
      expected: 'libs/store/src/lock.ts:1: docs/requirements.md has no CLD-REQ-999',
    },
  ];
  for (const { name, change, expected } of planted)
    it(`reports ${name}`, () => assert.deepEqual(listProblems(change), expected.split('\n')));

  it('reports nothing in this repository', () => {
    const root = new URL('../..', import.meta.url).pathname;
    const problems = findProblems({
      files: listFiles(root),
      read: (file) => readFileSync(join(root, file), 'utf8'),
    });
    assert.deepEqual(problems, []);
  });
});
