import { X509Certificate } from 'node:crypto';
import {
  CertificateAuthority,
  PeerVerifier,
  createKeyAndCsr,
  decodeCertificates,
  hashRoot,
  readCsr,
} from './index.js';
import type { AuthorityPems } from './index.js';

const NOW_MS = Date.UTC(2026, 0, 2, 3, 4, 5, 678);
const DAY_MS = 24 * 60 * 60 * 1000;
const ID = { trustDomain: 'cloudless', kind: 'node', id: 'n1' } as const;

const createAuthority = (generation = 1, trustDomain = 'cloudless') =>
  CertificateAuthority.create({ trustDomain, generation, nowMs: NOW_MS });

describe('CertificateAuthority', () => {
  let created: Awaited<ReturnType<typeof createAuthority>>;
  let authority: CertificateAuthority;
  let publicKey: Uint8Array;
  beforeAll(async () => {
    created = await createAuthority();
    authority = created.authority;
    ({ publicKey } = await readCsr((await createKeyAndCsr()).csr));
  });

  const issue = (changes: Partial<Parameters<CertificateAuthority['issue']>[0]> = {}) =>
    authority.issue({
      ...{ id: ID, publicKey, lifetimeMs: DAY_MS, nowMs: NOW_MS, usage: 'both' },
      ...changes,
    });

  it('issues a chain of leaf, issuing certificate and root that its own root verifies', async () => {
    const chain = await issue();
    const chainDer = decodeCertificates(chain.pem, 'the chain');
    expect(chainDer).toHaveLength(3);
    expect(chainDer[2]).toEqual(decodeCertificates(created.rootPem, 'the root')[0]);
    const verifier = new PeerVerifier({ trustDomain: 'cloudless', bundlePem: created.rootPem });
    expect(verifier.verify(chainDer, NOW_MS)).toEqual({
      id: ID,
      serial: chain.serial,
      notBeforeMs: chain.notBeforeMs,
      notAfterMs: chain.notAfterMs,
      publicKeySha256: chain.publicKeySha256,
      rootSha256: authority.rootSha256,
    });
    expect(hashRoot(created.rootPem)).toBe(authority.rootSha256);
    expect(verifier.rootSha256s).toEqual([authority.rootSha256]);
  });

  it('issues certificates that Node.js reads with the same names and times', async () => {
    const chain = await issue({
      dnsNames: ['localhost', '*.example.com'],
      ipAddresses: ['127.0.0.1', '::1'],
    });
    const [leaf, issuing, root] = decodeCertificates(chain.pem, 'the chain').map(
      (der) => new X509Certificate(der),
    );
    expect(leaf).toMatchObject({
      ca: false,
      serialNumber: chain.serial.toUpperCase(),
      subject: 'O=Cloudless\nCN=node/n1',
      subjectAltName:
        'URI:spiffe://cloudless/node/n1, DNS:localhost, DNS:*.example.com, IP Address:127.0.0.1, IP Address:0:0:0:0:0:0:0:1',
      keyUsage: ['1.3.6.1.5.5.7.3.2', '1.3.6.1.5.5.7.3.1'],
    });
    expect(Date.parse(leaf!.validFrom)).toBe(chain.notBeforeMs);
    expect(Date.parse(leaf!.validTo)).toBe(chain.notAfterMs);
    expect(leaf!.checkIssued(issuing!) && leaf!.verify(issuing!.publicKey)).toBe(true);
    expect(issuing!.checkIssued(root!) && issuing!.verify(root!.publicKey)).toBe(true);
    expect(leaf!.checkHost('a.example.com')).toBe('*.example.com');
    expect(leaf!.checkIP('::1')).toBe('::1');
  });

  it.each([
    { name: '24 h', lifetimeMs: DAY_MS, fromMs: -300_678, toMs: DAY_MS + 322 },
    { name: '12 s', lifetimeMs: 12_000, fromMs: -1678, toMs: 12_322 },
    { name: '1 s', lifetimeMs: 1000, fromMs: -678, toMs: 1322 },
  ])('backdates a certificate of $name by a twelfth, at most 5 minutes', async (lifetime) => {
    const { notBeforeMs, notAfterMs } = await issue({ lifetimeMs: lifetime.lifetimeMs });
    expect([notBeforeMs - NOW_MS, notAfterMs - NOW_MS]).toEqual([lifetime.fromMs, lifetime.toMs]);
  });

  it('never issues beyond the end of the authority', async () => {
    const nowMs = authority.notAfterMs - 1000;
    const { notAfterMs } = await issue({ nowMs });
    expect(notAfterMs).toBe(authority.notAfterMs);
    await expect(issue({ nowMs: authority.notAfterMs + 1 })).rejects.toThrow(
      'generation 1 of the certificate authority expired at 2031-01-01T03:04:05.000Z; rotate the certificate authority',
    );
  });

  it('leaves a name that is too long for a subject out of the subject', async () => {
    const id = `${'a'.repeat(63)}.${'b'.repeat(63)}`;
    const { pem } = await issue({ id: { ...ID, kind: 'workload', id } });
    expect(new X509Certificate(pem)).toMatchObject({
      subject: 'O=Cloudless\nCN=workload',
      subjectAltName: `URI:spiffe://cloudless/workload/${id}`,
    });
  });

  it('gives every certificate another serial number', async () => {
    const serials = await Promise.all(
      Array.from({ length: 20 }, async () => (await issue()).serial),
    );
    expect(new Set(serials).size).toBe(20);
    expect(serials.every((serial) => /^[4-7][0-9a-f]{31}$/.test(serial))).toBe(true);
  });

  it.each([
    ['another trust domain', { id: { ...ID, trustDomain: 'other' } }, 'denied'],
    ['an id that is not valid', { id: { ...ID, id: 'a/b' } }, 'invalid'],
    ['a key that is not on P-256', { publicKey: new Uint8Array(91) }, 'invalid'],
    ['a DNS name that is not valid', { dnsNames: ['a b'] }, 'invalid'],
    ['a DNS name with a line feed', { dnsNames: ['a\n'] }, 'invalid'],
    ['an address that is not valid', { ipAddresses: ['1.2.3'] }, 'invalid'],
    ['an address with a zone', { ipAddresses: ['fe80::1%lo'] }, 'invalid'],
    ['a lifetime under a second', { lifetimeMs: 999 }, 'internal'],
  ])('refuses %s', async (_, changes, kind) => {
    await expect(issue(changes)).rejects.toMatchObject({ kind });
  });

  describe('load', () => {
    const load = (pems: Partial<AuthorityPems>, trustDomain = 'cloudless', nowMs = NOW_MS) =>
      CertificateAuthority.load({ ...created, ...pems }, { trustDomain, generation: 1, nowMs });

    it('loads what create returned', async () => {
      const loaded = await load({});
      expect(loaded).toMatchObject({
        generation: 1,
        rootPem: created.rootPem,
        rootSha256: authority.rootSha256,
      });
    });

    it('names each mistake', async () => {
      const other = await createAuthority(2);
      await expect(load({ rootKeyPem: other.rootKeyPem })).rejects.toThrow(
        'the root certificate of generation 1 and its private key do not belong together; restore both from one backup',
      );
      await expect(load({ issuingKeyPem: other.issuingKeyPem })).rejects.toThrow(
        'the issuing certificate of generation 1 and its private key do not belong together',
      );
      await expect(
        load({ issuingPem: other.issuingPem, issuingKeyPem: other.issuingKeyPem }),
      ).rejects.toThrow('the issuing certificate of generation 1 is not signed by the root');
      await expect(load({}, 'other')).rejects.toThrow(
        'the root certificate of generation 1 is of the trust domain "cloudless", but --trust-domain is "other"',
      );
      await expect(load({ rootPem: '' })).rejects.toThrow(
        'the root certificate of generation 1 contains no certificate in PEM form',
      );
      await expect(load({ issuingKeyPem: 'x' })).rejects.toThrow(
        'the private key of the issuing certificate of generation 1 is not a private key in PEM form',
      );
      await expect(load({}, 'cloudless', NOW_MS + 6 * 365 * DAY_MS)).rejects.toMatchObject({
        kind: 'precondition',
        message: expect.stringContaining('generation 1 of the certificate authority expired at'),
      });
    });
  });

  it('refuses to create an authority of a trust domain that is not valid', async () => {
    await expect(createAuthority(1, 'Cloudless')).rejects.toThrow(
      '"Cloudless" is not a trust domain; a trust domain consists of lower-case letters',
    );
  });
});
