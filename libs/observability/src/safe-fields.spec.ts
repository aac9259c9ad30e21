import { REDACTED, toSafeFields } from './safe-fields.js';

describe('toSafeFields', () => {
  it.each([
    'token',
    'joinToken',
    'JOIN_TOKEN',
    'secret',
    'clientSecret',
    'password',
    'Authorization',
    'set-cookie',
    'privateKey',
    'private_key',
    'apiKey',
  ])('redacts the value of key %s, at any depth', (key) => {
    expect(toSafeFields({ [key]: 's3cr3t' })).toEqual({ [key]: REDACTED });
    expect(toSafeFields({ a: [{ [key]: { b: 's3cr3t' } }] })).toEqual({ a: [{ [key]: REDACTED }] });
    expect(toSafeFields({ a: new Map([[key, 's3cr3t']]) })).toEqual({ a: { [key]: REDACTED } });
  });

  it.each(['tokenId', 'secretName', 'tokenCount', 'nodeId', 'key', 'author'])(
    'keeps the value of key %s',
    (key) => {
      expect(toSafeFields({ [key]: 'shown' })).toEqual({ [key]: 'shown' });
    },
  );

  it.each([
    {
      name: 'private keys',
      text: 'read -----BEGIN EC PRIVATE KEY-----\nMHc\n-----END EC PRIVATE KEY----- done',
      expected: `read ${REDACTED} done`,
    },
    {
      name: 'truncated private keys',
      text: '-----BEGIN PRIVATE KEY-----\nMHc',
      expected: REDACTED,
    },
    {
      name: 'join tokens',
      text: 'used cl1.ab12.Zm9v_YmFy.0a1b, failed',
      expected: `used ${REDACTED}, failed`,
    },
    {
      name: 'bearer tokens',
      text: 'Bearer abc.def-ghi= was sent',
      expected: `${REDACTED} was sent`,
    },
    {
      name: 'nothing else',
      text: 'cl1 is a prefix, a bearer is a person',
      expected: 'cl1 is a prefix, a bearer is a person',
    },
  ])('redacts $name in texts', ({ text, expected }) => {
    expect(toSafeFields({ text, error: new Error(text) })).toEqual({
      text: expected,
      error: { error: expected, errorName: 'Error' },
    });
  });

  it('truncates cycles, depth, long lists and long texts', () => {
    const cycle: Record<string, unknown> = {};
    cycle['self'] = cycle;
    expect(toSafeFields({ cycle })).toEqual({ cycle: { self: '[cycle]' } });
    expect(
      JSON.stringify(toSafeFields({ a: { b: { c: { d: { e: { f: { g: 1 } } } } } } })),
    ).toContain('[deep]');
    expect(toSafeFields({ bytes: new Uint8Array(9) })).toEqual({ bytes: '[9 bytes]' });
    expect(
      (toSafeFields({ list: Array.from({ length: 150 }, () => 0) })['list'] as unknown[]).at(-1),
    ).toBe('[50 more]');
    expect(String(toSafeFields({ text: 'x'.repeat(10_000) })['text'])).toHaveLength(
      8_192 + '... (10000 characters)'.length,
    );
  });
});
