import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import fc from 'fast-check';
import { requireCertificatePair } from './certificate-pair.js';

const openssl = promisify(execFile);
const subject = 'secret "default/web"';

interface Files {
  readonly certificate: Buffer;
  readonly key: Buffer;
}

let directory: string;
let own: Files;
let foreign: Files;
let encryptedKey: Buffer;

async function createPair(name: string): Promise<Files> {
  const [certificateFile, keyFile] = [join(directory, `${name}.crt`), join(directory, name)];
  await openssl('openssl', [
    ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'],
    ...['-subj', `/CN=${name}`, '-days', '2', '-keyout', keyFile, '-out', certificateFile],
  ]);
  return { certificate: await readFile(certificateFile), key: await readFile(keyFile) };
}

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'cloudless-pair-'));
  [own, foreign] = await Promise.all([createPair('own'), createPair('foreign')]);
  const file = join(directory, 'encrypted');
  const args = ['ec', '-in', join(directory, 'own'), '-aes256', '-passout', 'pass:x', '-out', file];
  await openssl('openssl', args);
  encryptedKey = await readFile(file);
});

afterAll(() => rm(directory, { recursive: true }));

function requirePair(certificate: Uint8Array, key: Uint8Array) {
  const data = new Map([
    ['tls.crt', certificate],
    ['tls.key', key],
  ]);
  return requireCertificatePair(data, subject);
}

describe('certificate pair of a secret', () => {
  it('has the certificate with its intermediates, and the key', () => {
    const chain = Buffer.concat([own.certificate, foreign.certificate]);
    expect(requirePair(chain, own.key)).toEqual({
      certificate: chain.toString(),
      key: own.key.toString(),
    });
  });

  it('needs both keys', () => {
    const data = new Map([['tls.crt', own.certificate]]);
    expect(() => requireCertificatePair(data, subject)).toThrow(
      'secret "default/web" needs the keys tls.crt and tls.key for a route; its keys are tls.crt',
    );
  });

  it.each<{ name: string; pair: () => readonly [Uint8Array, Uint8Array]; message: string }>([
    {
      name: 'a certificate that is no PEM',
      pair: () => [Buffer.from('x'), own.key],
      message: 'tls.crt of secret "default/web" has no certificate in PEM',
    },
    {
      name: 'a key that is no PEM',
      pair: () => [own.certificate, own.certificate],
      message: 'tls.key of secret "default/web" has no unencrypted private key in PEM',
    },
    {
      name: 'an encrypted key',
      pair: () => [own.certificate, encryptedKey],
      message: 'tls.key of secret "default/web" has no unencrypted private key in PEM',
    },
    {
      name: 'the key of another certificate',
      pair: () => [own.certificate, foreign.key],
      message:
        'tls.key of secret "default/web" does not belong to the first certificate in tls.crt',
    },
    {
      name: 'the intermediates before the certificate',
      pair: () => [Buffer.concat([foreign.certificate, own.certificate]), own.key],
      message:
        'tls.key of secret "default/web" does not belong to the first certificate in tls.crt',
    },
    {
      name: 'a malformed intermediate',
      pair: () => [
        Buffer.concat([
          own.certificate,
          Buffer.from('-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n'),
        ]),
        own.key,
      ],
      message:
        'tls.crt and tls.key of secret "default/web" cannot serve TLS: an intermediate certificate is malformed, or the key is too weak',
    },
    {
      name: 'a large certificate',
      pair: () => [Buffer.alloc(65_537), own.key],
      message:
        'tls.crt of secret "default/web" has 65537 bytes; at most 65536 are possible for a route',
    },
    {
      name: 'a large key',
      pair: () => [own.certificate, Buffer.alloc(16_385)],
      message:
        'tls.key of secret "default/web" has 16385 bytes; at most 16384 are possible for a route',
    },
  ])('refuses $name', ({ pair, message }) => {
    expect(() => requirePair(...pair())).toThrow(message);
  });

  it('refuses any other bytes, without repeating them', () => {
    const armored = fc
      .base64String({ maxLength: 400 })
      .map((text) =>
        Buffer.from(`-----BEGIN PRIVATE KEY-----\n${text}\n-----END PRIVATE KEY-----\n`),
      );
    const bytes = fc.oneof(fc.uint8Array({ minLength: 1, maxLength: 400 }), armored);
    fc.assert(
      fc.property(bytes, (key) => {
        expect(() => requirePair(own.certificate, key)).toThrow(
          /^tls\.key of secret "default\/web" has no unencrypted private key in PEM$/,
        );
        expect(() => requirePair(key, own.key)).toThrow(
          /^tls\.crt of secret "default\/web" has no certificate in PEM$/,
        );
      }),
    );
  });
});
