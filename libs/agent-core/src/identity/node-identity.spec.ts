import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import fc from 'fast-check';
import { NodeCertificateSchema } from '@cloudless/api';
import { getValidity, renewalTimeMs, toNodeIdentity } from './node-identity.js';

const HOUR = 3_600_000;

describe('renewalTimeMs', () => {
  it.each([
    { name: 'half of the life without jitter', obtainedAtMs: 0, jitter: 0, renewedAt: 12 },
    { name: '60 % of the life with all jitter', obtainedAtMs: 0, jitter: 1, renewedAt: 14.4 },
    {
      name: 'half of the rest of a certificate that was valid long before its issue',
      obtainedAtMs: 20 * HOUR,
      jitter: 0,
      renewedAt: 22,
    },
    {
      name: 'half of the life when the clock here is behind',
      obtainedAtMs: -5 * HOUR,
      jitter: 0,
      renewedAt: 12,
    },
    {
      name: 'the end of the life when the clock here is far ahead',
      obtainedAtMs: 99 * HOUR,
      jitter: 0,
      renewedAt: 24,
    },
  ])('returns $name', ({ obtainedAtMs, jitter, renewedAt }) => {
    const certificate = { notBeforeMs: 0, notAfterMs: 24 * HOUR, obtainedAtMs };
    expect(renewalTimeMs(certificate, jitter) / HOUR).toBeCloseTo(renewedAt);
  });

  it('leaves at least two fifths of the remaining life for retries', () => {
    fc.assert(
      fc.property(
        fc.nat(1e9),
        fc.integer({ min: 1, max: 1e9 }),
        fc.double({ min: 0, max: 1, noNaN: true }),
        (obtainedAtMs, lifeMs, jitter) => {
          const notAfterMs = obtainedAtMs + lifeMs;
          const at = renewalTimeMs({ notBeforeMs: 0, notAfterMs, obtainedAtMs }, jitter);
          expect(at).toBeGreaterThanOrEqual(obtainedAtMs + lifeMs * 0.5 - 1);
          expect(notAfterMs - at).toBeGreaterThanOrEqual(lifeMs * 0.4 - 1);
        },
      ),
    );
  });
});

describe('getValidity', () => {
  it.each([
    [9, 'future'],
    [10, 'valid'],
    [19, 'valid'],
    [20, 'expired'],
  ])('at %i of 10 to 20 returns %s', (nowMs, validity) => {
    expect(getValidity({ notBeforeMs: 10, notAfterMs: 20 }, nowMs)).toBe(validity);
  });
});

describe('toNodeIdentity', () => {
  const certificate = {
    certificateChain: 'chain',
    trustBundle: { generation: 3n, pem: 'roots' },
    notBefore: timestampFromMs(1_000),
    notAfter: timestampFromMs(2_000),
    coordinatorIds: ['spiffe://cloudless/controller/coordinator'],
    trustDomain: 'cloudless',
  };
  const request = { keyPem: 'key', csr: new Uint8Array(), publicKeySha256: 'aa' };
  const of = { nodeId: 'n1', clusterId: 'c1', request };

  it('takes the key of the request and the rest of the response', () => {
    expect(toNodeIdentity(create(NodeCertificateSchema, certificate), of, 1_500)).toEqual({
      nodeId: 'n1',
      clusterId: 'c1',
      trustDomain: 'cloudless',
      coordinatorIds: ['spiffe://cloudless/controller/coordinator'],
      trustBundle: { generation: 3n, pem: 'roots' },
      keyPem: 'key',
      chainPem: 'chain',
      publicKeySha256: 'aa',
      notBeforeMs: 1_000,
      notAfterMs: 2_000,
      obtainedAtMs: 1_500,
    });
  });

  it.each([
    ['certificate', { certificateChain: '' }],
    ['trust bundle', { trustBundle: { generation: 1n, pem: '' } }],
    ['validity', { notAfter: undefined }],
    ['ids of coordinators', { coordinatorIds: [] }],
    ['trust domain', { trustDomain: '' }],
  ])('refuses a response without %s', (part, change) => {
    const { notAfter, ...rest } = { ...certificate, ...change };
    const incomplete = create(NodeCertificateSchema, notAfter ? { ...rest, notAfter } : rest);
    expect(() => toNodeIdentity(incomplete, of, 0)).toThrow(`a certificate without ${part};`);
  });

  it('refuses a response of a coordinator without identities', () => {
    expect(() => toNodeIdentity(undefined, of, 0)).toThrow('a certificate without certificate,');
  });
});
