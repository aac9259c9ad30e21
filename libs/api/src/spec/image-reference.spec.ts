import { isImageReference } from './image-reference.js';

const sha256 = `sha256:${'0a'.repeat(32)}`;

describe('isImageReference', () => {
  it.each([
    'nginx',
    'nginx:alpine',
    'library/nginx:1.27-alpine',
    'team/web_app/a__b/c--d.e:v1.2_3',
    'localhost/web',
    '127.0.0.1:5000/slow:1',
    '[fd00::1]:5000/web',
    'Registry.Example:5000/web',
    `web@${sha256}`,
    `registry.example/web:1@${sha256}`,
    `web@sha512:${'0'.repeat(128)}`,
  ])('returns true for %s', (text) => {
    expect(isImageReference(text)).toBe(true);
  });

  it.each([
    '',
    'Nginx',
    'nginx alpine',
    'nginx\0',
    ' nginx',
    'nginx\n',
    'nginx:',
    'nginx:.a',
    `nginx:${'a'.repeat(129)}`,
    'nginx@',
    'nginx@sha256:0123',
    `nginx@md5:${'0'.repeat(32)}`,
    'https://registry.example/web',
    '/nginx',
    'nginx/',
    'a//b',
    'a___b',
    '-a',
    'team/Web',
  ])('returns false for %j', (text) => {
    expect(isImageReference(text)).toBe(false);
  });
});
