import { MasterKeyRecord_State as State } from '@cloudless/api/store';
import { checkReadable, checkRotated, findMoment } from './check-secrets.js';
import type { StoredSecrets, StoredVersion } from './stored-secrets.js';

const expected = new Map([
  ['default/a', 'one'],
  ['default/b', 'two'],
]);
const oneKey = [{ id: 'new', state: State.ACTIVE }];
const bothKeys = [{ id: 'old', state: State.RETIRING }, ...oneKey];
const aVersion = (secret: string, value: string, keyId = 'new'): StoredVersion => ({
  ...{ secret, version: 1, isNewest: true, recordKeyId: keyId, valueKeyId: keyId },
  data: new Map([['password', Buffer.from(value)]]),
});
const a = aVersion('default/a', 'one');
const b = aVersion('default/b', 'two');
const stored = (fields: Partial<StoredSecrets> = {}): StoredSecrets => ({
  ...{ keys: oneKey, versions: [a, b], orphans: 0 },
  ...fields,
});

describe('the checks of stored secrets', () => {
  it('hold after a rotation', () => {
    expect([...checkReadable(stored(), expected), ...checkRotated(stored())]).toEqual([]);
  });

  it.each<{ name: string; fields: Partial<StoredSecrets>; violation: string }>([
    {
      name: 'a lost secret',
      fields: { versions: [a] },
      violation: '1 secrets are missing: default/b',
    },
    {
      name: 'a value that cannot be decrypted',
      fields: { versions: [a, { ...b, data: undefined }] },
      violation: '1 versions cannot be decrypted: version 1 of default/b (master key new)',
    },
    {
      name: 'a value that is lost',
      fields: { versions: [a, { ...b, data: undefined, valueKeyId: undefined }] },
      violation:
        '1 versions cannot be decrypted: version 1 of default/b (master key unknown, no value)',
    },
    {
      name: 'the value of another secret',
      fields: { versions: [a, { ...b, data: a.data }] },
      violation: '1 secrets have another value: default/b',
    },
    {
      name: 'a value that was left behind',
      fields: { orphans: 1 },
      violation: '1 values belong to no version, must be 0',
    },
    { name: 'no key', fields: { keys: [] }, violation: '0 master keys are active, must be 1' },
  ])('find $name', ({ fields, violation }) => {
    expect(checkReadable(stored(fields), expected)).toEqual([violation]);
  });

  it.each<{ name: string; fields: Partial<StoredSecrets>; violation: string }>([
    {
      name: 'a version under the old key',
      fields: { versions: [a, aVersion('default/b', 'two', 'old')] },
      violation:
        '1 versions are under an older master key: version 1 of default/b (master key old)',
    },
    {
      name: 'a value under the old key whose record names the new one',
      fields: { versions: [a, { ...b, valueKeyId: 'old' }] },
      violation:
        '1 versions are under an older master key: version 1 of default/b (master key old)',
    },
    {
      name: 'the old key',
      fields: { keys: bothKeys },
      violation: '2 master keys are stored, must be 1',
    },
  ])('find $name after a rotation', ({ fields, violation }) => {
    expect(checkRotated(stored(fields))).toEqual([violation]);
  });

  it.each<{ moment: string; fields: Partial<StoredSecrets> }>([
    { moment: 'none', fields: {} },
    { moment: 'pending', fields: { keys: [...oneKey, { id: 'next', state: State.PENDING }] } },
    {
      moment: 'active',
      fields: {
        keys: bothKeys,
        versions: [aVersion('default/a', 'one', 'old'), aVersion('default/b', 'two', 'old')],
      },
    },
    {
      moment: 'middle',
      fields: { keys: bothKeys, versions: [a, aVersion('default/b', 'two', 'old')] },
    },
    { moment: 'unused', fields: { keys: bothKeys } },
  ])('finds the moment $moment of a rotation', ({ moment, fields }) => {
    expect(findMoment(stored(fields))).toBe(moment);
  });
});
