import { readExtensions } from './extensions.js';

/** DER of short values: tag, length below 128, content. */
const der = (tag: number, ...parts: (number | readonly number[])[]): number[] => {
  const content = parts.flat();
  return content.length < 0x80
    ? [tag, content.length, ...content]
    : [tag, 0x81, content.length, ...content];
};
const TRUE = [0x01, 0x01, 0xff];
const BASIC_CONSTRAINTS = [0x55, 0x1d, 0x13];
const KEY_USAGE = [0x55, 0x1d, 0x0f];
const EXTENDED_KEY_USAGE = [0x55, 0x1d, 0x25];
const ALTERNATIVE_NAMES = [0x55, 0x1d, 0x11];
const UNKNOWN = [0x2a, 0x03];
const CLIENT_AUTH = [0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02];
const SERVER_AUTH = [0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];
const ANY_USAGE = [0x55, 0x1d, 0x25, 0x00];
const ascii = (text: string): number[] => [...Buffer.from(text, 'latin1')];

const extension = (oid: readonly number[], value: readonly number[], flag: number[] = []) =>
  der(0x30, der(0x06, oid), flag, der(0x04, value));
const read = (...extensions: number[][]) =>
  readExtensions(Uint8Array.from(der(0x30, ...extensions)), 'the certificate');

describe('readExtensions', () => {
  it.each([
    ['an empty list', [], {}],
    ['a certificate of a peer', [extension(BASIC_CONSTRAINTS, der(0x30))], { isCa: false }],
    [
      'an authority without a path length',
      [extension(BASIC_CONSTRAINTS, der(0x30, TRUE), TRUE)],
      { isCa: true, pathLength: undefined },
    ],
    [
      'an authority with a path length',
      [extension(BASIC_CONSTRAINTS, der(0x30, TRUE, der(0x02, 1)), TRUE)],
      { isCa: true, pathLength: 1 },
    ],
    [
      'key usage digitalSignature',
      [extension(KEY_USAGE, der(0x03, 7, 0x80))],
      { maySignHandshakes: true, maySignCertificates: false },
    ],
    [
      'key usage keyCertSign',
      [extension(KEY_USAGE, der(0x03, 2, 0x04))],
      { maySignHandshakes: false, maySignCertificates: true },
    ],
    [
      'key usage with a second byte',
      [extension(KEY_USAGE, der(0x03, 7, 0x84, 0x80))],
      { maySignHandshakes: true, maySignCertificates: true },
    ],
    [
      'clientAuth',
      [extension(EXTENDED_KEY_USAGE, der(0x30, der(0x06, CLIENT_AUTH)))],
      { forClients: true, forServers: false },
    ],
    [
      'serverAuth among others',
      [
        extension(
          EXTENDED_KEY_USAGE,
          der(0x30, der(0x06, ANY_USAGE), der(0x06, SERVER_AUTH), der(0x06, UNKNOWN)),
        ),
      ],
      { forClients: false, forServers: true },
    ],
    [
      'any usage, which allows nothing here',
      [extension(EXTENDED_KEY_USAGE, der(0x30, der(0x06, ANY_USAGE)))],
      { forClients: false, forServers: false },
    ],
    [
      'URIs among other names',
      [
        extension(
          ALTERNATIVE_NAMES,
          der(0x30, der(0x82, ascii('a')), der(0x86, ascii('x:y')), der(0x86, [0xe9])),
        ),
      ],
      { uris: ['x:y', 'é'] },
    ],
    ['an unknown extension that is not critical', [extension(UNKNOWN, [1, 2, 3])], {}],
  ])('reads %s', (_, extensions, expected) => {
    expect(read(...extensions)).toEqual({
      ...{ isCa: false, pathLength: undefined, uris: [] },
      ...{ maySignHandshakes: false, maySignCertificates: false },
      ...{ forClients: false, forServers: false },
      ...expected,
    });
  });

  const malformed = 'the certificate is not valid DER';
  it.each([
    [
      'a critical extension that is not known',
      [extension(UNKNOWN, [1], TRUE)],
      'the certificate has a critical extension that is not known here',
    ],
    [
      'the same extension twice',
      [extension(KEY_USAGE, der(0x03, 7, 0x80)), extension(KEY_USAGE, der(0x03, 2, 0x04))],
      'the certificate has the same extension twice',
    ],
    [
      'an unknown extension twice',
      [extension(UNKNOWN, []), extension(UNKNOWN, [])],
      'the certificate has the same extension twice',
    ],
    ['FALSE where only TRUE is DER', [extension(UNKNOWN, [], [0x01, 0x01, 0x00])], malformed],
    ['another TRUE than 0xff', [extension(UNKNOWN, [], [0x01, 0x01, 0x01])], malformed],
    ['a value after the value', [der(0x30, der(0x06, UNKNOWN), der(0x04), der(0x05))], malformed],
    ['a path length of a peer', [extension(BASIC_CONSTRAINTS, der(0x30, der(0x02, 0)))], malformed],
    [
      'a negative path length',
      [extension(BASIC_CONSTRAINTS, der(0x30, TRUE, der(0x02, 0xff)))],
      malformed,
    ],
    [
      'a path length of two bytes',
      [extension(BASIC_CONSTRAINTS, der(0x30, TRUE, der(0x02, 1, 0)))],
      malformed,
    ],
    ['an empty path length', [extension(BASIC_CONSTRAINTS, der(0x30, TRUE, der(0x02)))], malformed],
    [
      'more than the basic constraints',
      [extension(BASIC_CONSTRAINTS, der(0x30, TRUE, der(0x02, 0), der(0x05)))],
      malformed,
    ],
    [
      'bytes after the basic constraints',
      [extension(BASIC_CONSTRAINTS, [...der(0x30), 0x05, 0x00])],
      malformed,
    ],
    ['an empty key usage', [extension(KEY_USAGE, der(0x03))], malformed],
    ['a key usage without bits', [extension(KEY_USAGE, der(0x03, 0))], malformed],
    ['eight unused bits', [extension(KEY_USAGE, der(0x03, 8, 0x80))], malformed],
    ['a key usage of three bytes', [extension(KEY_USAGE, der(0x03, 0, 0x80, 1, 1))], malformed],
    ['another type of key usage', [extension(KEY_USAGE, der(0x04, 0, 0x80))], malformed],
    [
      'a usage that is no object identifier',
      [extension(EXTENDED_KEY_USAGE, der(0x30, der(0x04, CLIENT_AUTH)))],
      malformed,
    ],
    [
      'names that are cut off',
      [extension(ALTERNATIVE_NAMES, [0x30, 0x04, 0x86, 0x03, 0x61, 0x62])],
      malformed,
    ],
    [
      'bytes after the names',
      [extension(ALTERNATIVE_NAMES, [...der(0x30, der(0x86, ascii('a'))), 0])],
      malformed,
    ],
  ])('refuses %s', (_, extensions, message) => {
    expect(() => read(...extensions)).toThrow(
      expect.objectContaining({ reason: 'CERTIFICATE_INVALID', message }),
    );
  });
});
