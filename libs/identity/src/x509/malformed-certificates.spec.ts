import { webcrypto } from 'node:crypto';
import fc from 'fast-check';
import { CloudlessError } from '@cloudless/base';
import { TestAuthority } from '../testing/index.js';
import { MAX_CERTIFICATE_BYTES, readCertificate } from './certificate.js';
import { PeerVerifier, createKeyAndCsr, readCsr } from './index.js';
import { Pkcs10CertificateRequestGenerator, SubjectAlternativeNameExtension } from './peculiar.js';
import { P256_ALGORITHM } from './public-key.js';

const NOW_MS = Date.UTC(2026, 0, 2);
const MAX_CSR_BYTES = 16 * 1024;

/** Changes bytes: flips a bit, overwrites, deletes, inserts, cuts off. The result always differs. */
const mutate = (original: Uint8Array): fc.Arbitrary<Uint8Array> =>
  fc
    .tuple(
      fc.constantFrom('flip', 'set', 'delete', 'insert', 'cut', 'duplicate'),
      fc.nat(original.length - 1),
      fc.nat(255),
      fc.integer({ min: 1, max: 40 }),
    )
    .map(([kind, at, byte, count]) => {
      const bytes = [...original];
      if (kind === 'flip') bytes[at]! ^= 1 << (byte % 8);
      if (kind === 'set') bytes[at] = byte;
      if (kind === 'delete') bytes.splice(at, count);
      if (kind === 'insert') bytes.splice(at, 0, ...Array<number>(count).fill(byte));
      if (kind === 'cut') bytes.length = at;
      if (kind === 'duplicate') bytes.splice(at, 0, ...bytes.slice(at, at + count));
      return Uint8Array.from(bytes);
    })
    .filter((bytes) => Buffer.compare(bytes, original) !== 0);

/** DER whose lengths fit, nested at random: reaches deeper than random bytes. */
const randomDer: fc.Arbitrary<Uint8Array> = fc
  .letrec<{ value: number[] }>((tie) => ({
    value: fc
      .tuple(
        fc.constantFrom(
          0x30,
          0x31,
          0x02,
          0x03,
          0x04,
          0x06,
          0x01,
          0x05,
          0x17,
          0x18,
          0xa0,
          0xa3,
          0x86,
        ),
        fc.oneof(
          { maxDepth: 6 },
          fc.array(fc.nat(255), { maxLength: 12 }),
          fc.array(tie('value'), { maxLength: 5 }).map((values) => values.flat()),
        ),
      )
      .map(([tag, content]) => [tag, ...lengthBytes(content.length), ...content]),
  }))
  .value.map((bytes) => Uint8Array.from(bytes));

function lengthBytes(length: number): number[] {
  if (length < 0x80) return [length];
  return length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
}

/** Returns true when `run` succeeds; fails for anything but an error of ours. */
function succeeds(run: () => unknown): boolean {
  try {
    run();
    return true;
  } catch (reason) {
    if (reason instanceof CloudlessError && reason.kind === 'unauthenticated') return false;
    throw reason;
  }
}

describe('certificates of strangers', () => {
  let verifier: PeerVerifier;
  let chain: readonly Uint8Array[];
  beforeAll(async () => {
    const authority = await TestAuthority.create({ nowMs: NOW_MS });
    verifier = new PeerVerifier({ trustDomain: 'cloudless', bundlePem: authority.bundlePem });
    chain = (await authority.issue('node', 'n1')).chainDer;
  });

  it.each([
    ['leaf', 0],
    ['issuing certificate', 1],
  ])('never verify with a changed %s', (_, changed) => {
    fc.assert(
      fc.property(mutate(chain[changed]!), (der) => {
        const presented = chain.map((original, index) => (index === changed ? der : original));
        expect(succeeds(() => verifier.verify(presented, NOW_MS))).toBe(false);
      }),
      { numRuns: 3_000 },
    );
    expect(succeeds(() => verifier.verify(chain, NOW_MS))).toBe(true);
  });

  it('never verify as random values', () => {
    fc.assert(
      fc.property(fc.oneof(randomDer, fc.uint8Array({ maxLength: 200 })), (der) => {
        expect(succeeds(() => verifier.verify([der, ...chain.slice(1)], NOW_MS))).toBe(false);
      }),
      { numRuns: 2_000 },
    );
  });

  it('have no bytes after the certificate when they can be read', () => {
    const [leaf] = chain;
    fc.assert(
      fc.property(mutate(leaf!), (der) => {
        if (!succeeds(() => readCertificate(der, 'the certificate'))) return;
        expect(der.length).toBe(4 + der[2]! * 256 + der[3]!);
      }),
      { numRuns: 1_000 },
    );
  });

  /** Sequences within sequences up to a size, and other inputs that hurt readers that recurse. */
  const hostileInputs = (size: number): readonly (readonly [string, Uint8Array])[] => {
    let nested = Uint8Array.of(0x30, 0);
    while (nested.length < size - 4)
      nested = Uint8Array.from([0x30, ...lengthBytes(nested.length), ...nested]);
    const sequence = (content: readonly number[]): Uint8Array =>
      Uint8Array.from([0x30, ...lengthBytes(content.length), ...content]);
    const pairs = (first: number, second: number): number[] =>
      Array.from({ length: size - 8 }, (_, index) => (index % 2 === 0 ? first : second));
    return [
      ['nested', nested],
      ['empty values', sequence(pairs(0x30, 0))],
      ['indefinite lengths', Uint8Array.from(pairs(0x30, 0x80))],
      ['long tags', sequence(pairs(0x1f, 0xff))],
      ['zeros', new Uint8Array(size)],
      ['a length of 16 MiB', Uint8Array.of(0x30, 0x83, 0xff, 0xff, 0xff, 0)],
      ['a length of 4 GiB', Uint8Array.of(0x30, 0x84, 0xff, 0xff, 0xff, 0xff, 0)],
    ];
  };

  it('cost at most 100 ms of CPU at the largest size', () => {
    for (const [, der] of hostileInputs(MAX_CERTIFICATE_BYTES)) {
      const before = process.cpuUsage();
      expect(succeeds(() => verifier.verify([der], NOW_MS))).toBe(false);
      expect(succeeds(() => verifier.verify([chain[0]!, der, der, der], NOW_MS))).toBe(false);
      const { user, system } = process.cpuUsage(before);
      expect((user + system) / 1000).toBeLessThan(100);
    }
  });

  describe('requests', () => {
    it('ignore names and extensions that the sender asks for', async () => {
      const keys = await webcrypto.subtle.generateKey(P256_ALGORITHM, true, ['sign', 'verify']);
      const request = await Pkcs10CertificateRequestGenerator.create(
        {
          keys,
          name: 'CN=admin',
          signingAlgorithm: P256_ALGORITHM,
          extensions: [
            new SubjectAlternativeNameExtension([
              { type: 'url', value: 'spiffe://cloudless/user/admin' },
            ]),
          ],
        },
        webcrypto,
      );
      const read = await readCsr(new Uint8Array(request.rawData));
      expect(Object.keys(read)).toEqual(['publicKey', 'publicKeySha256']);
      const spki = await webcrypto.subtle.exportKey('spki', keys.publicKey);
      expect(read.publicKey).toEqual(new Uint8Array(spki));
      const authority = await TestAuthority.create({ nowMs: NOW_MS });
      const { pem } = await authority.authority.issue({
        id: { trustDomain: 'cloudless', kind: 'node', id: 'n1' },
        ...{ publicKey: read.publicKey, lifetimeMs: 1000, nowMs: NOW_MS, usage: 'client' },
      });
      expect(Buffer.from(pem.replace(/-.*-|\s/g, ''), 'base64').toString('latin1')).not.toContain(
        'admin',
      );
    });

    it('are never accepted after a change', async () => {
      const { csr } = await createKeyAndCsr();
      await fc.assert(
        fc.asyncProperty(mutate(csr), (der) =>
          expect(readCsr(der)).rejects.toMatchObject({ kind: 'invalid' }),
        ),
        { numRuns: 3_000 },
      );
    });

    it('with an RSA key, or a signature of another key, are refused', async () => {
      const rsaAlgorithm = {
        name: 'RSASSA-PKCS1-v1_5',
        hash: 'SHA-256',
        modulusLength: 2048,
        publicExponent: Uint8Array.of(1, 0, 1),
      };
      const rsa = await webcrypto.subtle.generateKey(rsaAlgorithm, true, ['sign', 'verify']);
      const request = await Pkcs10CertificateRequestGenerator.create(
        { keys: rsa, signingAlgorithm: rsaAlgorithm },
        webcrypto,
      );
      await expect(readCsr(new Uint8Array(request.rawData))).rejects.toThrow(
        'the key of the certificate signing request is not an ECDSA key on the curve P-256',
      );
      const first = await webcrypto.subtle.generateKey(P256_ALGORITHM, true, ['sign', 'verify']);
      const second = await webcrypto.subtle.generateKey(P256_ALGORITHM, true, ['sign', 'verify']);
      const stolen = await Pkcs10CertificateRequestGenerator.create(
        {
          keys: { publicKey: first.publicKey, privateKey: second.privateKey },
          signingAlgorithm: P256_ALGORITHM,
        },
        webcrypto,
      );
      await expect(readCsr(new Uint8Array(stolen.rawData))).rejects.toThrow(
        'the certificate signing request is not signed by the key in the request with ECDSA and SHA-256',
      );
    });

    it('are at most 16 KiB and cost at most 100 ms of CPU', async () => {
      await expect(readCsr(new Uint8Array(MAX_CSR_BYTES + 1))).rejects.toThrow(
        'the certificate signing request has 16385 bytes; the limit is 16384',
      );
      for (const [, der] of hostileInputs(MAX_CSR_BYTES)) {
        const before = process.cpuUsage();
        await expect(readCsr(der)).rejects.toMatchObject({ kind: 'invalid' });
        const { user, system } = process.cpuUsage(before);
        expect((user + system) / 1000).toBeLessThan(100);
      }
    });
  });
});
