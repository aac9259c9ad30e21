import { X509Certificate } from 'node:crypto';
import fc from 'fast-check';
import { TestAuthority } from '../testing/index.js';
import { readCertificate } from './certificate.js';

const NOW_MS = Date.UTC(2026, 0, 2);

/** Replaces the first occurrence of a text, which must have the same length. */
function replaceText(der: Uint8Array, from: string, to: string): Uint8Array {
  const bytes = Buffer.from(der);
  const at = bytes.indexOf(from, 0, 'latin1');
  if (at < 0) throw new Error(`no ${from}`);
  bytes.write(to, at, 'latin1');
  return bytes;
}

describe('readCertificate', () => {
  let authority: TestAuthority;
  beforeAll(async () => {
    authority = await TestAuthority.create({ nowMs: NOW_MS });
  });

  it('reads what Node.js reads', async () => {
    const label = fc.stringMatching(/^[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?$/);
    // Years from 1950 are the two digits of UTCTime, years from 2050 have four.
    const second = fc
      .integer({ min: Date.UTC(1951, 0, 1) / 1000, max: Date.UTC(2120, 0, 1) / 1000 })
      .map((value) => value * 1000);
    await fc.assert(
      fc.asyncProperty(
        fc.record({
          serial: fc.stringMatching(/^[1-7][0-9a-f]([0-9a-f]{2}){0,18}$/),
          notBeforeMs: second,
          notAfterMs: second,
          dnsNames: fc.array(label, { maxLength: 4 }),
          usage: fc.constantFrom('client', 'server', 'both'),
          id: label,
        }),
        async ({ usage, id, ...content }) => {
          const uri = `spiffe://cloudless/node/${id}`;
          const use = { kind: 'peer', usage } as const;
          const { chainDer } = await authority.sign({ ...content, use }, uri);
          const read = readCertificate(chainDer[0]!, 'the certificate');
          const native = new X509Certificate(chainDer[0]!);
          expect(read.serial.toUpperCase()).toBe(native.serialNumber);
          expect(read.notBeforeMs).toBe(Date.parse(native.validFrom));
          expect(read.notAfterMs).toBe(Date.parse(native.validTo));
          expect(read.publicKey).toEqual(
            new Uint8Array(native.publicKey.export({ format: 'der', type: 'spki' })),
          );
          expect(read.extensions.uris.map((text) => `URI:${text}`)).toEqual(
            native.subjectAltName?.split(', ').filter((name) => name.startsWith('URI:')),
          );
          expect(read.extensions).toMatchObject({
            isCa: native.ca,
            forClients: native.keyUsage.includes('1.3.6.1.5.5.7.3.2'),
            forServers: native.keyUsage.includes('1.3.6.1.5.5.7.3.1'),
          });
        },
      ),
      { numRuns: 100 },
    );
  });

  it.each([
    ['a month that does not exist', '261301000000Z'],
    ['a day that does not exist', '260230000000Z'],
    ['an hour that does not exist', '260101240000Z'],
    ['a second that does not exist', '260101000060Z'],
    ['a time zone', '260101000000+'],
    ['a letter', '26010100000xZ'],
  ])('refuses a time with %s', async (_, time) => {
    const { chainDer } = await authority.sign(
      { notBeforeMs: NOW_MS },
      'spiffe://cloudless/node/n1',
    );
    const der = replaceText(chainDer[0]!, '260102000000Z', time);
    expect(() => readCertificate(der, 'the certificate')).toThrow(
      'the certificate is not valid DER',
    );
  });

  it.each([
    ['one byte', '01', '01', '01'],
    ['zero', '01', '00', '00'],
    ['a zero byte for the sign', '7f7f', '0080', '80'],
    ['20 bytes', '41'.repeat(20), '41'.repeat(20), '41'.repeat(20)],
    ['a negative number', '7f7f', '8000', undefined],
    ['a zero byte too many', '7f7f', '007f', undefined],
    ['21 bytes', '41'.repeat(21), '41'.repeat(21), undefined],
  ])('reads or refuses a serial number of %s', async (_, signed, stored, expected) => {
    const { chainDer } = await authority.sign({ serial: signed }, 'spiffe://cloudless/node/n1');
    const integer = (hex: string): string =>
      Buffer.from(`02${(hex.length / 2).toString(16).padStart(2, '0')}${hex}`, 'hex').toString(
        'latin1',
      );
    const der = replaceText(chainDer[0]!, integer(signed), integer(stored));
    const read = (): string => readCertificate(der, 'the certificate').serial;
    if (expected === undefined) expect(read).toThrow('the certificate is not valid DER');
    else expect(read()).toBe(expected);
  });

  it('refuses a byte after the certificate, inside and outside', async () => {
    const [leaf] = (await authority.issue('node', 'n1')).chainDer;
    const after = Buffer.concat([leaf!, Buffer.of(0)]);
    expect(() => readCertificate(after, 'the certificate')).toThrow('is not valid DER');
    const inside = Buffer.concat([leaf!, Buffer.of(5, 0)]);
    inside.writeUInt16BE(inside.readUInt16BE(2) + 2, 2);
    expect(() => readCertificate(inside, 'the certificate')).toThrow('is not valid DER');
  });

  it('refuses a certificate of version 1', async () => {
    const { chainDer } = await authority.issue('node', 'n1');
    const bytes = Buffer.from(chainDer[0]!);
    const version = bytes.indexOf(Buffer.from('a003020102', 'hex'));
    bytes[version + 4] = 0;
    expect(() => readCertificate(bytes, 'the certificate')).toThrow(
      'the certificate is not X.509 version 3',
    );
  });

  it('refuses another signature algorithm inside or outside the signed part', async () => {
    const { chainDer } = await authority.issue('node', 'n1');
    const ecdsaSha256 = Buffer.from('2a8648ce3d040302', 'hex');
    const bytes = Buffer.from(chainDer[0]!);
    for (const at of [bytes.indexOf(ecdsaSha256), bytes.lastIndexOf(ecdsaSha256)]) {
      const changed = Buffer.from(bytes);
      changed[at + 7] = 3; // ecdsa-with-SHA384
      expect(() => readCertificate(changed, 'the certificate')).toThrow(
        'the certificate is not signed with ECDSA and SHA-256',
      );
    }
  });
});
