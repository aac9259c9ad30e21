import { toImageCredentials } from './image-credentials.js';

const toData = (values: Record<string, string>): ReadonlyMap<string, Uint8Array> =>
  new Map(Object.entries(values).map(([key, text]) => [key, new TextEncoder().encode(text)]));
const toConfig = (auths: object): Record<string, string> => ({
  '.dockerconfigjson': JSON.stringify({ auths }),
});

describe('toImageCredentials', () => {
  const expected = { username: 'ci', password: 'a:b' };

  it.each([
    { name: 'user name and password', image: 'web', data: { ...expected } },
    {
      name: 'a line feed at the end of a value',
      image: 'web',
      data: { username: 'ci\n', password: 'a:b\n' },
    },
    {
      name: 'the server of the image',
      image: 'example.com:5000/web:1',
      data: { ...expected, server: 'https://example.com:5000/v2/' },
    },
    {
      name: 'the default registry under its old name',
      image: 'library/web',
      data: toConfig({ 'https://index.docker.io/v1/': expected }),
    },
    {
      name: 'the field auth',
      image: 'localhost/web@sha256:0',
      data: toConfig({
        'example.com': { auth: 'bm86bm8=' },
        localhost: { auth: Buffer.from('ci:a:b').toString('base64') },
      }),
    },
  ])('accepts $name', ({ image, data }) => {
    expect(toImageCredentials('registry', image, toData(data))).toEqual(expected);
  });

  it.each([
    { name: 'no password', data: { username: 'ci' }, message: 'needs the keys username and' },
    {
      name: 'another server',
      data: { ...expected, server: 'example.org' },
      message: 'is for the registry example.org, and the image is at example.com',
    },
    { name: 'no JSON', data: { '.dockerconfigjson': 'a:b' }, message: 'has no JSON' },
    {
      name: 'nothing for the registry',
      data: toConfig({ 'example.org': expected }),
      message: 'has nothing for the registry example.com',
    },
    {
      name: 'an entry without a password',
      data: toConfig({ 'example.com': { username: 'ci' } }),
      message: 'has no user name and password for example.com',
    },
  ])('refuses $name, without a value in the message', ({ data, message }) => {
    const read = (): unknown => toImageCredentials('registry', 'example.com/web', toData(data));
    expect(read).toThrow(message);
    expect(read).not.toThrow('a:b');
  });
});
