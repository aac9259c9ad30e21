import fc from 'fast-check';
import { SPIFFE_KINDS, formatSpiffeId, parseSpiffeId } from '../index.js';
import type { SpiffeId } from '../index.js';

const LONG_LABEL = 'a'.repeat(63);

describe('parseSpiffeId', () => {
  it.each<[string, SpiffeId]>([
    ['spiffe://cloudless/node/n1', { trustDomain: 'cloudless', kind: 'node', id: 'n1' }],
    [
      'spiffe://prod.example_1-a/workload/default.web',
      { trustDomain: 'prod.example_1-a', kind: 'workload', id: 'default.web' },
    ],
    ['spiffe://cloudless/service/dns', { trustDomain: 'cloudless', kind: 'service', id: 'dns' }],
    [
      `spiffe://cloudless/controller/${LONG_LABEL}`,
      { trustDomain: 'cloudless', kind: 'controller', id: LONG_LABEL },
    ],
    ['spiffe://cloudless/user/ada.l_1', { trustDomain: 'cloudless', kind: 'user', id: 'ada.l_1' }],
  ])('parses %s', (uri, id) => {
    expect(parseSpiffeId(uri)).toEqual(id);
    expect(formatSpiffeId(id)).toBe(uri);
  });

  const scheme = 'does not begin with spiffe://';
  const trustDomain = 'of the SPIFFE ID is not valid; a trust domain consists of';
  const form = 'is not of the form /<kind>/<id>';
  const id = 'is not valid; a ';
  it.each([
    ['', scheme],
    ['cloudless/node/n1', scheme],
    ['SPIFFE://cloudless/node/n1', scheme],
    ['https://cloudless/node/n1', scheme],
    ['spiffe:/cloudless/node/n1', scheme],
    [' spiffe://cloudless/node/n1', scheme],
    ['spiffe://', trustDomain],
    ['spiffe:///node/n1', trustDomain],
    ['spiffe://Cloudless/node/n1', trustDomain],
    ['spiffe://cloudless:443/node/n1', trustDomain],
    ['spiffe://ada@cloudless/node/n1', trustDomain],
    ['spiffe://cloudless?/node/n1', trustDomain],
    ['spiffe://cloudless#/node/n1', trustDomain],
    ['spiffe://cloud%6cess/node/n1', trustDomain],
    ['spiffe://clоudless/node/n1', trustDomain],
    [`spiffe://${'a'.repeat(256)}/node/n1`, trustDomain],
    ['spiffe://cloudless', form],
    ['spiffe://cloudless/', form],
    ['spiffe://cloudless/node', form],
    ['spiffe://cloudless/node/n1/', form],
    ['spiffe://cloudless//node/n1', form],
    ['spiffe://cloudless/node/n1/x', form],
    ['spiffe://cloudless/pod/p1', 'has the unknown kind "pod"; known are node, workload, service'],
    ['spiffe://cloudless/Node/n1', 'has the unknown kind "Node"'],
    ['spiffe://cloudless/toString/n1', 'has the unknown kind "toString"'],
    ['spiffe://cloudless/node/', id],
    ['spiffe://cloudless/node/.', id],
    ['spiffe://cloudless/node/..', id],
    ['spiffe://cloudless/node/N1', id],
    ['spiffe://cloudless/node/n1?x', id],
    ['spiffe://cloudless/node/n1#x', id],
    ['spiffe://cloudless/node/n%31', id],
    ['spiffe://cloudless/node/n1\0', id],
    ['spiffe://cloudless/node/n1\n', id],
    ['spiffe://cloudless/node/-n1', id],
    ['spiffe://cloudless/node/n1-', id],
    ['spiffe://cloudless/node/a.b', 'a node is named by a DNS label'],
    [`spiffe://cloudless/node/${LONG_LABEL}a`, id],
    ['spiffe://cloudless/workload/web', 'a workload is named by <namespace>.<name>'],
    ['spiffe://cloudless/workload/a.b.c', id],
    ['spiffe://cloudless/workload/.web', id],
    ['spiffe://cloudless/user/ada@example.com', 'a user is named by lower-case letters'],
    ['spiffe://cloudless/user/..', id],
    [`spiffe://cloudless/node/${'a'.repeat(2048)}`, 'the SPIFFE ID is longer than 2048 bytes'],
  ])('refuses %j', (uri, message) => {
    expect(() => parseSpiffeId(uri)).toThrow(
      expect.objectContaining({
        reason: 'CERTIFICATE_INVALID',
        message: expect.stringContaining(message),
      }),
    );
  });

  it('repeats at most 100 characters of a refused text', () => {
    expect(() => parseSpiffeId('x'.repeat(2000))).toThrow(/^the identity "x{100}\.\.\." /);
  });

  it('accepts only texts that formatSpiffeId returns for the result', () => {
    const piece = fc.constantFrom(
      ...'spiffe:// / . .. %2e ? # @ : node user workload cloudless a-1 A é \0'.split(' '),
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 8 }), (pieces) => {
        const uri = pieces.join('');
        let parsed: SpiffeId;
        try {
          parsed = parseSpiffeId(uri);
        } catch {
          return;
        }
        expect(formatSpiffeId(parsed)).toBe(uri);
        expect(new URL(uri).href).toBe(uri);
      }),
      { numRuns: 5_000 },
    );
  });
});

describe('formatSpiffeId', () => {
  it('refuses parts that would make another identity', () => {
    const parts = { trustDomain: 'cloudless', kind: 'node', id: 'n1' } as const;
    expect(() => formatSpiffeId({ ...parts, id: '../user/ada' })).toThrow('is not of the form');
    expect(() => formatSpiffeId({ ...parts, trustDomain: 'a/user/ada?' })).toThrow();
  });

  it('has a text for each kind that parses to the kind', () => {
    for (const kind of SPIFFE_KINDS) {
      const id = { trustDomain: 'cloudless', kind, id: kind === 'workload' ? 'a.b' : 'a' };
      expect(parseSpiffeId(formatSpiffeId(id))).toEqual(id);
    }
  });
});
