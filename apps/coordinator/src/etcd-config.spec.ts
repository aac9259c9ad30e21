import { parseCoordinatorConfig } from './config.js';

const parse = (values: Record<string, unknown>) =>
  parseCoordinatorConfig([{ source: 'test', values }], '/data');
const ENDPOINTS = 'https://10.0.0.1:2379, https://10.0.0.2:2379';

describe('settings of etcd', () => {
  it('are several endpoints, files and a prefix', () => {
    expect(
      parse({
        state: 'etcd',
        etcdEndpoints: ENDPOINTS,
        etcdCa: '/ca.pem',
        etcdCert: '/client.pem',
        etcdKey: '/client.key',
        etcdUser: 'cloudless',
        etcdPasswordFile: '/password',
        etcdPrefix: '/clusters/a',
      }),
    ).toMatchObject({
      etcdEndpoints: ['https://10.0.0.1:2379', 'https://10.0.0.2:2379'],
      etcdPrefix: '/clusters/a',
    });
  });

  it.each([
    { name: 'no endpoints', values: {}, message: '--etcd-endpoints: is missing' },
    {
      name: 'an endpoint without scheme',
      values: { etcdEndpoints: '10.0.0.1:2379' },
      message: '"10.0.0.1:2379" is not an endpoint of etcd',
    },
    {
      name: 'an endpoint with a path',
      values: { etcdEndpoints: 'https://10.0.0.1:2379/v3' },
      message: 'is not an endpoint of etcd',
    },
    {
      name: 'http:// beside https://',
      values: { etcdEndpoints: 'https://10.0.0.1:2379,http://10.0.0.2:2379' },
      message: '--etcd-endpoints: mixes http:// and https://',
    },
    {
      name: 'a CA for a plaintext endpoint',
      values: { etcdEndpoints: 'http://10.0.0.1:2379', etcdCa: '/ca.pem' },
      message: '--etcd-ca: needs TLS, and http://10.0.0.1:2379 is plaintext',
    },
    {
      name: 'a certificate without key',
      values: { etcdEndpoints: ENDPOINTS, etcdCert: '/client.pem' },
      message: '--etcd-key: is missing',
    },
    {
      name: 'a user without password',
      values: { etcdEndpoints: ENDPOINTS, etcdUser: 'root' },
      message: '--etcd-password-file: is missing',
    },
    {
      name: 'a password for another machine in plaintext',
      values: {
        etcdEndpoints: 'http://127.0.0.1:2379,http://10.0.0.1:2379',
        etcdUser: 'root',
        etcdPasswordFile: '/password',
      },
      message: '--etcd-user: would send the password in plaintext to http://10.0.0.1:2379',
    },
    {
      name: 'an endpoint in plaintext on another machine',
      values: { etcdEndpoints: 'http://127.0.0.1:2379,http://10.0.0.1:2379' },
      message:
        '--etcd-endpoints: http://10.0.0.1:2379 is in plaintext on another machine: whoever can read or change packets on the way rules the cluster; use https:// endpoints and --etcd-ca, or --etcd-insecure',
    },
    {
      name: 'a permission for plaintext without such an endpoint',
      values: { etcdEndpoints: ENDPOINTS, etcdInsecure: true },
      message: '--etcd-insecure: has no effect, because no endpoint',
    },
    {
      name: 'a permission for plaintext and a password',
      values: {
        ...{ etcdEndpoints: 'http://10.0.0.1:2379', etcdInsecure: true },
        ...{ etcdUser: 'root', etcdPasswordFile: '/password' },
      },
      message: '--etcd-user: would send the password in plaintext',
    },
    {
      name: 'a prefix that ends with /',
      values: { etcdEndpoints: ENDPOINTS, etcdPrefix: '/cloudless/' },
      message: 'a prefix such as /cloudless',
    },
    {
      name: 'endpoints for another engine',
      values: { state: 'lmdb', etcdEndpoints: ENDPOINTS },
      message: '--etcd-endpoints: has no effect with --state lmdb',
    },
  ])('are refused with $name', ({ values, message }) => {
    expect(() => parse({ state: 'etcd', ...values })).toThrow(message);
  });
});

describe('plaintext to etcd', () => {
  it.each([
    { etcdEndpoints: 'http://127.0.0.1:2379,http://[::1]:2379,http://localhost:2379' },
    { etcdEndpoints: 'http://127.0.0.1:2379,http://etcd.example:2379', etcdInsecure: true },
  ])('is accepted with %j', (values) => {
    const { etcdEndpoints } = parse({ state: 'etcd', ...values });
    expect(etcdEndpoints.join()).toBe(values.etcdEndpoints);
  });
});
