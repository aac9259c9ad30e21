import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { WorkloadSpecSchema } from '@cloudless/api';
import { describeTemplateChanges } from './template-changes.js';

type Init = MessageInitShape<typeof WorkloadSpecSchema>;

const describeFrom = (before: Init | undefined, after: Init) =>
  describeTemplateChanges(
    before && create(WorkloadSpecSchema, before),
    create(WorkloadSpecSchema, after),
  );

describe('describeTemplateChanges', () => {
  it.each<{
    readonly name: string;
    readonly before?: Init;
    readonly after: Init;
    readonly says: string[];
  }>([
    { name: 'nothing for the oldest version', after: { image: 'nginx:1' }, says: [] },
    {
      name: 'nothing for equal templates, as after a restart',
      before: { image: 'nginx:1' },
      after: { image: 'nginx:1' },
      says: [],
    },
    {
      name: 'both values of a short field',
      before: { image: 'nginx:1' },
      after: { image: 'nginx:2' },
      says: ['image nginx:1 -> nginx:2'],
    },
    {
      name: 'added, changed and removed keys of a map',
      before: { env: { A: '1', B: '2' } },
      after: { env: { A: '3', V: 'x' } },
      says: ['env["A"] 1 -> 3', 'env["B"] -', 'env["V"] +'],
    },
    {
      name: 'the words of a command',
      before: { command: ['sleep', '60'] },
      after: { command: ['sleep', '90'] },
      says: ['command sleep 60 -> sleep 90'],
    },
    {
      name: 'only the field of a long value',
      before: { args: ['x'.repeat(41)] },
      after: { args: ['y'] },
      says: ['args changed'],
    },
    {
      name: 'the spelling of manifests',
      before: { workingDir: '/a' },
      after: { workingDir: '/b' },
      says: ['workingDir /a -> /b'],
    },
    {
      name: 'at most 20 changes',
      before: { image: 'a' },
      after: {
        image: 'a',
        env: Object.fromEntries(Array.from({ length: 22 }, (_, n) => [`K${n + 10}`, '1'])),
      },
      says: [...Array.from({ length: 20 }, (_, n) => `env["K${n + 10}"] +`), '2 more'],
    },
  ])('gives $name', ({ before, after, says }) => {
    expect(describeFrom(before, after)).toEqual(says);
  });
});
