import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  MasterKeyRecordSchema,
  MasterKeyRecord_State as State,
  SecretRecordSchema,
} from '@cloudless/api/store';
import {
  countVersions,
  findRotation,
  listMasterKeys,
  planMasterKeyStep,
  type MasterKeyStep,
  type MasterKeyView,
} from './master-key-steps.js';

const { PENDING, ACTIVE, RETIRING } = State;

/** `[id, state, re_encrypt_all]`, oldest first. */
type Key = readonly [string, State, boolean?];
/** The ids of the master keys of the versions, by secret. */
type Versions = Readonly<Record<string, readonly string[]>>;

function aView(keys: readonly Key[], versions: Versions = {}, size = 10): MasterKeyView {
  const records = keys.map(([id, state, reEncryptAll = false], index) =>
    create(MasterKeyRecordSchema, {
      ...{ id, state, reEncryptAll },
      createdAt: timestampFromMs(1_000 * index),
    }),
  );
  const mac = create(MasterKeyRecordSchema, { id: 'mac' });
  const secrets = Object.entries(versions)
    .sort(([left], [right]) => (left < right ? -1 : 1))
    .map(([name, ids]) =>
      create(SecretRecordSchema, {
        ...{ namespace: 'default', name, uid: name },
        versions: ids.map((masterKeyId, index) => ({
          ...{ version: index + 1, masterKeyId },
          sizes: { k: size },
        })),
      }),
    );
  return {
    masterKeys: () => [mac, ...records.reverse()].map((value) => ({ value, revision: 1n })),
    secretsByName: (after = '') =>
      secrets
        .filter(({ name }) => `default/${name}` > after)
        .map((value) => ({ value, revision: 1n })),
  };
}

/** `activate b, former a`, `reEncrypt b: x 1 2, y 1`, `delete a, end of b`. */
function describeStep(step: MasterKeyStep): string {
  switch (step.kind) {
    case 'activate':
      return `activate ${step.key.value.id}, former ${step.former.map(({ value }) => value.id).join()}`;
    case 'reEncrypt':
      return `reEncrypt ${step.to.value.id}: ${describeBatches(step.batches)}`;
    case 'blocked':
      return `blocked: ${describeBatches(step.versions)}`;
    case 'deleteKeys': {
      const end = step.endOf === undefined ? '' : `, end of ${step.endOf.value.id}`;
      return `delete ${step.keys.map(({ value }) => value.id).join()}${end}`;
    }
    default:
      return step.kind;
  }
}

function describeBatches(
  batches: Extract<MasterKeyStep, { kind: 'reEncrypt' }>['batches'],
): string {
  return batches.map(({ secret, versions }) => [secret.value.name, ...versions].join(' ')).join();
}

describe('the next step of master keys', () => {
  it.each<{ name: string; keys: readonly Key[]; versions?: Versions; step: string; key?: string }>([
    { name: 'no keys', keys: [], step: 'none' },
    { name: 'one key', keys: [['a', ACTIVE]], versions: { x: ['a'] }, step: 'none' },
    {
      name: 'a new key',
      keys: [
        ['a', ACTIVE],
        ['b', PENDING, true],
      ],
      versions: { x: ['a'] },
      ...{ step: 'activate b, former a', key: 'b' },
    },
    {
      name: 'a new key after a rotation that is not completed',
      keys: [
        ['a', RETIRING],
        ['b', ACTIVE],
        ['c', PENDING],
      ],
      versions: { x: ['a', 'b'] },
      ...{ step: 'activate c, former b', key: 'c' },
    },
    {
      name: 'versions of older keys',
      keys: [
        ['a', RETIRING],
        ['b', RETIRING],
        ['c', ACTIVE, true],
      ],
      versions: { x: ['a', 'b', 'c'], y: ['c'], z: ['b'] },
      ...{ step: 'reEncrypt c: x 1 2,z 1', key: 'c' },
    },
    {
      name: 'no version of older keys',
      keys: [
        ['a', RETIRING],
        ['b', RETIRING],
        ['c', ACTIVE, true],
      ],
      versions: { x: ['c'] },
      ...{ step: 'delete a,b, end of c', key: 'c' },
    },
    {
      name: 'a completed rotation',
      keys: [['b', ACTIVE, true]],
      versions: { x: ['b'] },
      step: 'none',
    },
    {
      name: 'older keys without re-encryption, one of them with a version',
      keys: [
        ['a', RETIRING],
        ['b', RETIRING],
        ['c', ACTIVE],
      ],
      versions: { x: ['b', 'c'] },
      step: 'delete a',
    },
    {
      name: 'an older key with a version, without re-encryption',
      keys: [
        ['a', RETIRING],
        ['b', ACTIVE],
      ],
      versions: { x: ['a'] },
      step: 'none',
    },
  ])('with $name', ({ keys, versions, step, key }) => {
    const view = aView(keys, versions);
    expect(describeStep(planMasterKeyStep(view))).toBe(step);
    expect(findRotation(view)?.value.id).toBe(key);
  });

  const rotating: readonly Key[] = [
    ['a', RETIRING],
    ['b', ACTIVE, true],
  ];

  it('takes as many versions as one commit may write, and goes on behind the last step', () => {
    const versions = { w: ['a'], x: ['a', 'a', 'a'], y: ['a'], z: ['a'] };
    const view = aView(rotating, versions);
    const plan = (maxWrites: number, after?: string): string =>
      describeStep(planMasterKeyStep(view, { maxWrites, after }));
    expect(plan(5)).toBe('reEncrypt b: w 1,x 1 2');
    expect(plan(2)).toBe('reEncrypt b: w 1');
    expect(plan(5, 'default/w')).toBe('reEncrypt b: x 1 2 3');
    expect(plan(4, 'default/y')).toBe('reEncrypt b: z 1,w 1');
    expect(plan(90, 'default/zz')).toBe('reEncrypt b: w 1,x 1 2 3,y 1,z 1');
    const large = aView(rotating, versions, 300_000);
    expect(describeStep(planMasterKeyStep(large))).toBe('reEncrypt b: w 1');
    const largest = aView(rotating, versions, 999_999);
    expect(describeStep(planMasterKeyStep(largest))).toBe('reEncrypt b: w 1');
  });

  it('leaves damaged versions to the end, and keeps their key', () => {
    const view = aView(rotating, { x: ['a', 'a'], y: ['a'] });
    const plan = (...damaged: readonly string[]): string =>
      describeStep(
        planMasterKeyStep(view, {
          isDamaged: ({ name }, version) => damaged.includes(`${name}${version}`),
        }),
      );
    expect(plan('x1')).toBe('reEncrypt b: x 2,y 1');
    expect(plan('x1', 'x2', 'y1')).toBe('blocked: x 1 2,y 1');
  });

  it('knows the keys by age, and the versions of each', () => {
    const view = aView(rotating, { x: ['a', 'b'], y: ['a'] });
    expect(listMasterKeys(view).map(({ value }) => value.id)).toEqual(['a', 'b']);
    expect([...countVersions(view)]).toEqual([
      ['a', 2],
      ['b', 1],
    ]);
  });
});
