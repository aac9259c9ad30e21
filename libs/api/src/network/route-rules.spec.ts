import { create, type MessageInitShape } from '@bufbuild/protobuf';
import fc from 'fast-check';
import {
  Port_Protocol as Protocol,
  RouteSpecSchema,
  ServiceSpecSchema,
  type RouteSpec,
} from '../gen.js';
import {
  checkRoute,
  findRoutePort,
  normalizePathPrefix,
  withRouteDefaults,
} from './route-rules.js';

type SpecInit = Omit<MessageInitShape<typeof RouteSpecSchema>, '$typeName' | '$unknown'>;

const rules = [{ service: 'web', port: '80' }];
const specOf = (init: SpecInit): RouteSpec => create(RouteSpecSchema, { rules, ...init });

describe('checkRoute', () => {
  it.each<readonly [string, SpecInit]>([
    ['a rule alone', {}],
    ['exact and wildcard hosts', { hosts: ['shop.example.com', '*.example.com', 'localhost'] }],
    ['paths with percent-encoding', { rules: [{ ...rules[0], pathPrefix: '/a%20b/c.d' }] }],
    ['certificate files', { tls: { certificateFile: '/etc/a.pem', keyFile: '/etc/a.key' } }],
    ['a secret', { tls: { certificateSecret: 'shop.tls-1' } }],
    ['a redirect with a secret', { redirectToHttps: true, tls: { certificateSecret: 'a' } }],
    [
      'a redirect with certificate files',
      { redirectToHttps: true, tls: { certificateFile: '/a', keyFile: '/b' } },
    ],
  ])('accepts %s', (_, init) => {
    expect(() => checkRoute(specOf(init))).not.toThrow();
  });

  const ofPath = (pathPrefix: string): SpecInit => ({ rules: [{ ...rules[0], pathPrefix }] });
  it.each<readonly [string, SpecInit, string | RegExp]>([
    ['no rules', { rules: [] }, 'spec.rules: at least one rule is required'],
    ['a host in upper case', { hosts: ['Shop.example.com'] }, 'spec.hosts[0]: "Shop.example.com"'],
    ['a host with a port', { hosts: ['a.example.com:80'] }, 'is not a host name'],
    ['an IP address as host', { hosts: ['192.0.2.1'] }, 'is not a host name'],
    ['an IPv6 address as host', { hosts: ['::1'] }, 'is not a host name'],
    ['a wildcard inside a host', { hosts: ['a.*.com'] }, 'is not a host name'],
    ['two wildcard labels', { hosts: ['*.*.com'] }, 'is not a host name'],
    ['a wildcard alone', { hosts: ['*'] }, 'is not a host name'],
    ['an empty host', { hosts: [''] }, 'is not a host name'],
    ['a host with a final dot', { hosts: ['a.example.com.'] }, 'is not a host name'],
    ['one host twice', { hosts: ['a.b', 'a.b'] }, 'spec.hosts[1]: "a.b" is used twice'],
    ['a path without "/"', ofPath('shop'), 'spec.rules[0].path_prefix: "shop" must begin with "/"'],
    ['a path with a query', ofPath('/a?b'), 'must not contain "?" or "#"'],
    ['a path with a fragment', ofPath('/a#b'), 'must not contain "?" or "#"'],
    ['a path with a space', ofPath('/a b'), 'must be percent-encoded'],
    ['a path with "%" alone', ofPath('/100%'), 'without two hexadecimal digits'],
    ['a path with an empty segment', ofPath('/a//b'), 'must not contain "//"'],
    ['a path with ".."', ofPath('/a/../b'), 'must not contain the segments'],
    ['a path that ends with ".."', ofPath('/a/..'), 'must not contain the segments'],
    [
      'one path twice',
      { rules: [...rules, { service: 'api', port: '81', pathPrefix: '/' }] },
      'spec.rules[1].path_prefix: "/" is used twice',
    ],
    [
      'paths that differ in a final "/"',
      { rules: ['/a', '/a/'].map((pathPrefix) => ({ service: 'a', port: '1', pathPrefix })) },
      '"/a" is used twice',
    ],
    ['the port 0', { rules: [{ service: 'web', port: '0' }] }, 'spec.rules[0].port: 0 is not'],
    ['the port 65536', { rules: [{ service: 'web', port: '65536' }] }, '65536 is not a port'],
    ['a redirect without TLS', { redirectToHttps: true }, 'spec.redirect_to_https: needs spec.tls'],
    [
      'TLS without files and secret',
      { tls: {} },
      'spec.tls.certificate_file: is required with spec.tls, unless certificate_secret is set',
    ],
    [
      'a name that no secret has, without repeating it',
      { tls: { certificateSecret: '-----BEGIN PRIVATE KEY-----' } },
      /^spec\.tls\.certificate_secret: must be the name of a secret: DNS labels with dots between them$/,
    ],
    [
      'a relative path of a file',
      { tls: { certificateFile: 'a.pem', keyFile: '/a.key' } },
      'spec.tls.certificate_file: "a.pem" is not an absolute path',
    ],
    [
      'TLS without the key',
      { tls: { certificateFile: '/a.pem' } },
      'spec.tls.key_file: is required',
    ],
    [
      'files together with a secret',
      { tls: { certificateFile: '/a', keyFile: '/b', certificateSecret: 'c' } },
      'cannot be combined with certificate_secret',
    ],
  ])('refuses %s', (_, init, message) => {
    expect(() => checkRoute(specOf(init))).toThrow(message);
  });
});

describe('withRouteDefaults', () => {
  it('fills in every absent field, and keeps what is set', () => {
    const filled = withRouteDefaults(
      specOf({
        rules: [...rules, { service: 'api', port: 'http', pathPrefix: '/api/', retries: 0 }],
      }),
    );
    expect(filled).toMatchObject({
      rules: [
        { pathPrefix: '/', timeout: { seconds: 60n }, retries: 1 },
        { pathPrefix: '/api', timeout: { seconds: 60n }, retries: 0 },
      ],
      limits: { maxHeaderBytes: 16_384, maxBodyBytes: 0n },
    });
    expect(withRouteDefaults(filled)).toEqual(filled);
  });
});

describe('normalizePathPrefix', () => {
  it('is idempotent and returns a path that ends with "/" only when it is "/"', () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom('/', 'a', 'b')), (parts) => {
        const path = normalizePathPrefix(`/${parts.join('')}`);
        expect(normalizePathPrefix(path)).toBe(path);
        expect(path === '/' || !path.endsWith('/')).toBe(true);
      }),
    );
  });
});

describe('findRoutePort', () => {
  const service = create(ServiceSpecSchema, {
    ports: [
      { port: 53, protocol: Protocol.UDP },
      { name: 'web', port: 80 },
      { name: '80', port: 81 },
      { port: 82 },
    ],
  });

  it.each([
    ['80', 80],
    ['web', 80],
    ['81', 81],
    ['port-82', 82],
    ['53', undefined],
    ['port-53', undefined],
    ['83', undefined],
  ])('finds the TCP port %s', (port, expected) => {
    expect(findRoutePort(service, port)?.port).toBe(expected);
  });
});
