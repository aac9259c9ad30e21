import { webcrypto } from 'node:crypto';
import { CloudlessError } from '@cloudless/base';
import { CERTIFICATE_MISTAKES, TestAuthority, importKey } from '../testing/index.js';
import type { CertificateMistake, TestCredential } from '../testing/index.js';
import { MAX_CERTIFICATE_BYTES } from './certificate.js';
import { PeerVerifier, encodeCertificates } from './index.js';
import type { AllowedPeers, PeerIdentity } from './index.js';
import {
  BasicConstraintsExtension,
  KeyUsageFlags,
  KeyUsagesExtension,
  SubjectAlternativeNameExtension,
  X509CertificateGenerator,
} from './peculiar.js';
import type { Extension } from './peculiar.js';
import { P256_ALGORITHM } from './public-key.js';

const NOW_MS = Date.UTC(2026, 0, 2, 3, 4, 5, 678);
const HOUR_MS = 3_600_000;
const CLIENT = { usage: 'client' } as const;

describe('PeerVerifier', () => {
  let authority: TestAuthority;
  let other: TestAuthority;
  let verifier: PeerVerifier;
  let node: TestCredential;
  beforeAll(async () => {
    authority = await TestAuthority.create({ nowMs: NOW_MS });
    other = await TestAuthority.create({ nowMs: NOW_MS, generation: 2 });
    verifier = new PeerVerifier({ trustDomain: 'cloudless', bundlePem: authority.bundlePem });
    node = await authority.issue('node', 'n1');
  });

  const verify = (
    { chainDer }: Pick<TestCredential, 'chainDer'>,
    allowed: AllowedPeers = CLIENT,
    nowMs = NOW_MS,
  ): PeerIdentity => verifier.verify(chainDer, nowMs, allowed);
  const errorOf = (run: () => unknown): CloudlessError => {
    try {
      run();
    } catch (reason) {
      if (reason instanceof CloudlessError) return reason;
      throw reason;
    }
    throw new Error('verified');
  };

  it('returns the identity of a peer of each kind', async () => {
    for (const [kind, id] of [
      ['node', 'n1'],
      ['workload', 'default.web'],
      ['service', 'dns'],
      ['controller', 'coordinator'],
      ['user', 'ada'],
    ] as const) {
      expect(verify(await authority.issue(kind, id)).id).toEqual({
        ...{ trustDomain: 'cloudless', kind, id },
      });
    }
  });

  it('needs only leaf and issuing certificate, and ignores others in any order', () => {
    const [leaf, issuing, root] = node.chainDer as [Uint8Array, Uint8Array, Uint8Array];
    const otherRoot = new Uint8Array(
      Buffer.from(other.authority.rootPem.split('\n').slice(1, -2).join(''), 'base64'),
    );
    for (const chainDer of [
      [leaf, issuing],
      [leaf, root, issuing],
      [leaf, otherRoot, issuing, leaf],
    ])
      expect(verify({ chainDer }).id.id).toBe('n1');
  });

  const texts: Readonly<Record<CertificateMistake, readonly [reason: string, text: string]>> = {
    expired: [
      'CERTIFICATE_EXPIRED',
      'the certificate expired at 2026-01-02T02:04:05Z, and the clock here shows 2026-01-02T03:04:05Z',
    ],
    'not yet valid': [
      'CERTIFICATE_NOT_YET_VALID',
      'the certificate is valid from 2026-01-02T04:04:05Z on, and the clock here shows 2026-01-02T03:04:05Z; compare the clocks of both machines',
    ],
    'of another authority': [
      'CERTIFICATE_INVALID',
      'the certificate is of another certificate authority: the root of its chain is not in the trust bundle',
    ],
    'of another authority with the same names': [
      'CERTIFICATE_INVALID',
      'the certificate is of another certificate authority: the root of its chain is not in the trust bundle',
    ],
    'of another trust domain': [
      'CERTIFICATE_INVALID',
      'the certificate is of the trust domain "other"; this cluster has the trust domain "cloudless"',
    ],
    'of an unknown kind': [
      'CERTIFICATE_INVALID',
      'the SPIFFE ID has the unknown kind "pod"; known are node, workload, service, controller, user',
    ],
    'with two URIs': [
      'CERTIFICATE_INVALID',
      'the certificate has 2 URIs among its alternative names; a peer has exactly one, the SPIFFE ID',
    ],
    'without a URI': [
      'CERTIFICATE_INVALID',
      'the certificate has no URI among its alternative names; a peer has exactly one, the SPIFFE ID',
    ],
    'of an authority': [
      'CERTIFICATE_INVALID',
      'the certificate is one of a certificate authority, not of a peer',
    ],
    'for another usage': [
      'CERTIFICATE_INVALID',
      'the certificate is not made for clients (extended key usage clientAuth)',
    ],
    'self-signed': [
      'CERTIFICATE_INVALID',
      'the certificate is self-signed; a peer needs a certificate of the certificate authority of the cluster',
    ],
    'of another generation': [
      'CERTIFICATE_INVALID',
      'the signature of the certificate is not of the issuing certificate beside it',
    ],
    'with an RSA key': [
      'CERTIFICATE_INVALID',
      'the key of the certificate is not an ECDSA key on the curve P-256',
    ],
    'with a changed signature': [
      'CERTIFICATE_INVALID',
      'the signature of the certificate is not of the issuing certificate beside it',
    ],
    'without its issuing certificate': [
      'CERTIFICATE_INVALID',
      'the issuing certificate was not presented together with the certificate',
    ],
  };
  it.each(CERTIFICATE_MISTAKES)('refuses a certificate %s', async (mistake) => {
    const [reason, message] = texts[mistake];
    const credential = await authority.issueMistake(mistake);
    expect(errorOf(() => verify(credential))).toMatchObject({
      kind: 'unauthenticated',
      reason,
      message,
    });
  });

  it.each<[string, AllowedPeers, string]>([
    [
      'a kind that is not allowed',
      { ...CLIENT, kinds: ['controller', 'user'] },
      'the certificate is of the node "n1"; allowed here: controller, user',
    ],
    [
      'an identity that is not allowed',
      { ...CLIENT, ids: ['spiffe://cloudless/node/n2'] },
      'the certificate is of spiffe://cloudless/node/n1; expected: spiffe://cloudless/node/n2',
    ],
    ['every identity when none is allowed', { ...CLIENT, ids: [] }, 'the certificate is of spiffe'],
  ])('refuses %s', (_, allowed, message) => {
    expect(errorOf(() => verify(node, allowed)).message).toContain(message);
  });

  it('accepts the allowed kind and the exact allowed identity', () => {
    expect(
      verify(node, { ...CLIENT, kinds: ['node'], ids: ['spiffe://cloudless/node/n1'] }).id.id,
    ).toBe('n1');
  });

  it('tells clients from servers by the extended key usage', async () => {
    const uri = 'spiffe://cloudless/node/n1';
    const client = await authority.sign({ use: { kind: 'peer', usage: 'client' } }, uri);
    const server = await authority.sign({ use: { kind: 'peer', usage: 'server' } }, uri);
    expect(verify(client, { usage: 'client' }).id.id).toBe('n1');
    expect(verify(server, { usage: 'server' }).id.id).toBe('n1');
    expect(errorOf(() => verify(client, { usage: 'server' })).message).toBe(
      'the certificate is not made for servers (extended key usage serverAuth)',
    );
    expect(errorOf(() => verify(server, { usage: 'client' })).message).toContain('for clients');
    expect(verifier.verify(server.chainDer, NOW_MS).id.id).toBe('n1');
  });

  describe('extensions', () => {
    const { digitalSignature, keyCertSign } = KeyUsageFlags;
    const name = new SubjectAlternativeNameExtension([
      { type: 'url', value: 'spiffe://cloudless/node/n1' },
    ]);
    const sign = (isCa: boolean, usages: number): Promise<TestCredential> =>
      authority.signExtensions([
        new BasicConstraintsExtension(isCa, undefined, true),
        new KeyUsagesExtension(usages, true),
        name,
      ]);
    const verifyAny = ({ chainDer }: TestCredential): PeerIdentity =>
      verifier.verify(chainDer, NOW_MS);

    it('must allow the key to sign handshakes', async () => {
      expect(verifyAny(await sign(false, digitalSignature)).id.id).toBe('n1');
      const message =
        'the key of the certificate may not sign handshakes (key usage digitalSignature)';
      const otherUse = await sign(false, KeyUsageFlags.keyAgreement);
      expect(errorOf(() => verifyAny(otherUse)).message).toBe(message);
      const noUse = await authority.signExtensions([name]);
      expect(errorOf(() => verifyAny(noUse)).message).toBe(message);
      const none = await authority.signExtensions([]);
      expect(errorOf(() => verifyAny(none)).message).toBe(message);
    });

    it('must show an authority neither by constraints nor by key usage', async () => {
      const message = 'the certificate is one of a certificate authority, not of a peer';
      for (const credential of [
        await sign(true, digitalSignature),
        await sign(false, digitalSignature | keyCertSign),
      ])
        expect(errorOf(() => verifyAny(credential)).message).toBe(message);
    });

    it('of a root must allow it to sign certificates of authorities', async () => {
      const keys = await webcrypto.subtle.generateKey(P256_ALGORITHM, true, ['sign', 'verify']);
      const createBundle = async (...extensions: Extension[]): Promise<string> => {
        const root = await X509CertificateGenerator.createSelfSigned(
          {
            ...{ keys, extensions, name: 'CN=root', signingAlgorithm: P256_ALGORITHM },
            ...{ notBefore: new Date(NOW_MS), notAfter: new Date(NOW_MS + HOUR_MS) },
          },
          webcrypto,
        );
        return encodeCertificates([new Uint8Array(root.rawData)]);
      };
      const create = (bundlePem: string): unknown =>
        new PeerVerifier({ trustDomain: 'cloudless', bundlePem });
      const usage = new KeyUsagesExtension(keyCertSign, true);
      create(await createBundle(new BasicConstraintsExtension(true, undefined, true), usage));
      create(await createBundle(new BasicConstraintsExtension(true, 1, true), usage));
      for (const extensions of [
        [],
        [usage],
        [new BasicConstraintsExtension(true, 1, true)],
        [new BasicConstraintsExtension(false, undefined, true), usage],
        [new BasicConstraintsExtension(true, 0, true), usage],
      ]) {
        const bundlePem = await createBundle(...extensions);
        expect(errorOf(() => create(bundlePem)).message).toBe(
          'certificate 1 of the trust bundle is not the root of a certificate authority',
        );
      }
    });
  });

  describe('times', () => {
    const at = async (notBeforeMs: number, notAfterMs: number): Promise<TestCredential> =>
      authority.sign({ notBeforeMs, notAfterMs }, 'spiffe://cloudless/node/n1');
    const second = Math.floor(NOW_MS / 1000) * 1000;

    it('includes both ends of the validity', async () => {
      const credential = await at(second, second + 1000);
      expect(verify(credential, CLIENT, second).notAfterMs).toBe(second + 1000);
      expect(verify(credential, CLIENT, second + 1000).notBeforeMs).toBe(second);
      expect(errorOf(() => verify(credential, CLIENT, second - 1)).reason).toBe(
        'CERTIFICATE_NOT_YET_VALID',
      );
      expect(errorOf(() => verify(credential, CLIENT, second + 1001)).reason).toBe(
        'CERTIFICATE_EXPIRED',
      );
    });

    it('accepts an expired certificate only during the grace', async () => {
      const credential = await at(second - HOUR_MS, second);
      const allowed = { ...CLIENT, expiredGraceMs: 1000 };
      expect(verify(credential, allowed, second + 1000).notAfterMs).toBe(second);
      expect(errorOf(() => verify(credential, allowed, second + 1001)).reason).toBe(
        'CERTIFICATE_EXPIRED',
      );
      expect(errorOf(() => verify(credential, allowed, second - 2 * HOUR_MS)).reason).toBe(
        'CERTIFICATE_NOT_YET_VALID',
      );
    });

    it('reads times after 2049', async () => {
      const notAfterMs = Date.UTC(2051, 6, 8, 9, 10, 11);
      expect(verify(await at(second, notAfterMs)).notAfterMs).toBe(notAfterMs);
    });

    it('names the part of the chain that has expired, also within the grace of the leaf', () => {
      const inSixYears = NOW_MS + 6 * 365 * 24 * HOUR_MS;
      const allowed = { ...CLIENT, expiredGraceMs: Number.MAX_SAFE_INTEGER / 2 };
      expect(errorOf(() => verify(node, allowed, inSixYears)).message).toMatch(
        /^the issuing certificate expired at 2031-01-01T03:04:05Z/,
      );
      expect(errorOf(() => verify(node, allowed, 2 * inSixYears)).message).toMatch(
        /^the root certificate expired at/,
      );
      expect(errorOf(() => verify(node, allowed, 0)).message).toMatch(
        /^the root certificate is valid from 2026-01-02T02:04:05Z on/,
      );
    });

    it('gives programs the times, and clients the time of the server', async () => {
      const credential = await authority.issueMistake('not yet valid');
      const times = { notBefore: '2026-01-02T04:04:05Z', notAfter: '2026-01-02T05:04:05Z' };
      expect(errorOf(() => verify(credential)).metadata).toEqual({
        ...times,
        serverTime: '2026-01-02T03:04:05Z',
      });
      const server = await authority.sign(
        {
          use: { kind: 'peer', usage: 'server' },
          notBeforeMs: NOW_MS + HOUR_MS,
          notAfterMs: NOW_MS + 2 * HOUR_MS,
        },
        'spiffe://cloudless/node/n1',
      );
      expect(errorOf(() => verify(server, { usage: 'server' })).metadata).toEqual(times);
    });
  });

  describe('bundles', () => {
    it('trusts every root of the bundle, and names the root that was used', async () => {
      const both = new PeerVerifier({
        trustDomain: 'cloudless',
        bundlePem: authority.bundlePem + other.bundlePem,
      });
      const second = await other.issue('node', 'n2');
      expect(both.verify(node.chainDer, NOW_MS).rootSha256).toBe(authority.authority.rootSha256);
      expect(both.verify(second.chainDer, NOW_MS).rootSha256).toBe(other.authority.rootSha256);
      expect(both.rootSha256s).toEqual([
        authority.authority.rootSha256,
        other.authority.rootSha256,
      ]);
    });

    it('does not trust a root that only the peer presents', async () => {
      const stranger = await other.issue('node', 'n1');
      expect(errorOf(() => verify(stranger)).message).toContain('another certificate authority');
    });

    it('refuses an issuing certificate that may not issue', async () => {
      const leaf = await authority.issue('node', 'n1');
      const [leafDer, , root] = leaf.chainDer as [Uint8Array, Uint8Array, Uint8Array];
      expect(errorOf(() => verify({ chainDer: [leafDer, root] })).message).toContain(
        'was not presented',
      );
      // A leaf "issued" by another leaf.
      const middle = await authority.sign({}, 'spiffe://cloudless/node/n1');
      const signingKey = await importKey(middle.keyPem);
      const forged = await authority.sign(
        { signingKey, issuer: [{ CN: ['test'] }], subject: [{ CN: ['forged'] }] },
        'spiffe://cloudless/user/admin',
      );
      const chainDer = [forged.chainDer[0]!, middle.chainDer[0]!, ...middle.chainDer.slice(1)];
      expect(errorOf(() => verify({ chainDer })).message).toBe(
        'the issuing certificate may not issue certificates of peers (basic constraints or key usage)',
      );
    });

    it.each<[string, () => string, string]>([
      ['an empty bundle', () => '', 'the trust bundle contains no certificate in PEM form'],
      [
        'a bundle with a certificate of a peer',
        () => encodeCertificates(node.chainDer.slice(0, 1)),
        'certificate 1 of the trust bundle is not the root of a certificate authority',
      ],
      [
        'a bundle with an issuing certificate',
        () => encodeCertificates([node.chainDer[2]!, node.chainDer[1]!]),
        'certificate 2 of the trust bundle is not the root of a certificate authority',
      ],
      [
        'a bundle with too many roots',
        () => authority.bundlePem.repeat(17),
        'the trust bundle has 17 roots; the limit is 16',
      ],
      [
        'a bundle with a damaged root',
        () => encodeCertificates([node.chainDer[2]!.subarray(0, 100)]),
        'certificate 1 of the trust bundle is not valid DER',
      ],
    ])('refuses %s', (_, bundlePem, message) => {
      const create = (): unknown =>
        new PeerVerifier({ trustDomain: 'cloudless', bundlePem: bundlePem() });
      expect(errorOf(create)).toMatchObject({ reason: 'CERTIFICATE_INVALID', message });
    });
  });

  describe('bounds', () => {
    it.each<[string, () => readonly Uint8Array[], string]>([
      ['no certificate', () => [], 'no certificate was presented'],
      [
        'too many certificates',
        () => [...node.chainDer, ...node.chainDer, ...node.chainDer],
        'the chain has 9 certificates; the limit is 8',
      ],
      [
        'a certificate that is too large',
        () => [new Uint8Array(MAX_CERTIFICATE_BYTES + 1)],
        'the certificate has 8193 bytes; the limit is 8192',
      ],
      [
        'another certificate that is too large',
        () => [node.chainDer[0]!, new Uint8Array(MAX_CERTIFICATE_BYTES + 1)],
        'certificate 2 of the chain has 8193 bytes; the limit is 8192',
      ],
      ['an empty certificate', () => [new Uint8Array()], 'the certificate is not valid DER'],
    ])('refuses %s', (_, chain, message) => {
      expect(errorOf(() => verify({ chainDer: chain() })).message).toBe(message);
    });
  });
});
