import { parseCoordinatorConfig } from './config.js';

const parse = (values: Record<string, unknown>) =>
  parseCoordinatorConfig([{ source: 'test', values }], '/data');

describe('parseCoordinatorConfig', () => {
  it('returns the default of every setting when no layer sets any', () => {
    expect(parse({})).toEqual({
      tls: 'on',
      host: '127.0.0.1',
      port: 8080,
      advertise: [],
      name: 'coordinator',
      trustDomain: 'cloudless',
      identityDir: undefined,
      secretsKeyFile: undefined,
      secretsPassphraseFile: undefined,
      secretsPreviousKeyFile: undefined,
      newAdminCredential: false,
      defaultPolicies: 'on',
      nodeCertificateLifetimeMs: 86_400_000,
      userCertificateLifetimeMs: 7 * 86_400_000,
      workloadCertificateLifetimeMs: 86_400_000,
      serverCertificateLifetimeMs: 30 * 86_400_000,
      opsHost: '127.0.0.1',
      opsPort: 8081,
      state: 'lmdb',
      etcdEndpoints: [],
      etcdCa: undefined,
      etcdCert: undefined,
      etcdKey: undefined,
      etcdUser: undefined,
      etcdPasswordFile: undefined,
      etcdPrefix: '/cloudless',
      etcdInsecure: false,
      dataDir: '/data',
      leaseMs: 3_000,
      pingMs: 900,
      leaveGraceMs: 60_000,
      hungAfterMs: undefined,
      serviceCidr: undefined,
      clusterDomain: undefined,
      logLevel: 'info',
      logFormat: 'auto',
      otlpEndpoint: undefined,
      auditRetentionMs: 30 * 86_400_000,
      eventRetentionMs: 30 * 86_400_000,
      auditBytes: 16 * 1024 ** 2,
      eventBytes: 4 * 1024 ** 2,
      requestBytes: 64 * 1024 ** 2,
      historyBytes: 64 * 1024 ** 2,
      allowedOrigins: [],
      weights: undefined,
    });
  });

  it('parses ports, durations, engines and weights', () => {
    expect(
      parse({
        port: '0',
        leaseMs: '10s',
        leaveGraceMs: '0s',
        hungAfterMs: '1m',
        state: 'memory',
        weights: '1,0,0,0.5,0',
        allowedOrigins: 'https://a.example, http://10.0.0.5:3000',
      }),
    ).toMatchObject({
      allowedOrigins: ['https://a.example', 'http://10.0.0.5:3000'],
      leaveGraceMs: 0,
      hungAfterMs: 60_000,
      port: 0,
      leaseMs: 10_000,
      state: 'memory',
      weights: { locality: 1, reliability: 0, cost: 0, utilisation: 0.5, networkPenalty: 0 },
    });
  });

  it('accepts every address with TLS', () => {
    expect(
      parse({ host: '0.0.0.0', opsHost: '::', advertise: 'c1.example, 10.0.0.5,2001:db8::1' }),
    ).toMatchObject({
      host: '0.0.0.0',
      opsHost: '::',
      advertise: ['c1.example', '10.0.0.5', '2001:db8::1'],
    });
  });

  it.each([
    {
      values: { port: 70_000 },
      message: 'test: port: "70000" must be a whole number from 0 to 65535',
    },
    {
      values: { state: 'sqlite' },
      message: 'test: state: "sqlite" must be one of lmdb, etcd, memory',
    },
    {
      values: { prot: 1 },
      message: 'test: prot: is not a setting; the settings are tls, host, port, advertise',
    },
    {
      values: { leaseMs: '1s' },
      message: '--lease: a lease of 1000 ms is less than three times the ping interval of 900 ms',
    },
    {
      values: { hungAfterMs: '2s' },
      message: '--hung-after: 2000 ms is shorter than the lease of 3000 ms',
    },
    { values: { leaveGraceMs: '-1s' }, message: 'leaveGraceMs: "-1s"' },
    { values: { serviceCidr: '10.96.0.1/16' }, message: 'did you mean 10.96.0.0/16?' },
    { values: { clusterDomain: 'Cloudless.' }, message: 'clusterDomain' },
    {
      values: { allowedOrigins: 'https://a.example/' },
      message: '"https://a.example/" is not a web',
    },
    { values: { allowedOrigins: '*' }, message: '"*" is not a web origin' },
    { values: { allowedOrigins: 'https://a.example,null' }, message: '"null" is not a web origin' },
    {
      values: { allowedOrigins: 'HTTPS://A.example' },
      message: '"HTTPS://A.example" is not a web',
    },
    { values: { weights: '0,0,0,0,0' }, message: 'must be five numbers from 0, not all 0' },
    { values: { weights: '1,2,3' }, message: 'must be five numbers from 0, not all 0' },
    { values: { weights: '1,1,1,1,-1' }, message: 'must be five numbers from 0, not all 0' },
    {
      values: { logLevel: 'loud' },
      message: 'test: logLevel: "loud" must be one of error, warn, info, debug',
    },
    {
      values: { tls: 'off', host: '0.0.0.0' },
      message: 'refusing to listen on 0.0.0.0 without TLS; use --tls on or listen on 127.0.0.1',
    },
    {
      values: { tls: 'off', opsHost: '10.0.0.5' },
      message: 'refusing to listen on 10.0.0.5 without TLS',
    },
    {
      values: { tls: 'off', newAdminCredential: true },
      message:
        '--new-admin-credential: a coordinator without TLS has no users; start with --tls on',
    },
    { values: { tls: 'maybe' }, message: 'test: tls: "maybe" must be one of on, off' },
    {
      values: { advertise: 'a.example:8080' },
      message: '"a.example:8080" is neither a DNS name nor an IP address',
    },
    {
      values: { name: 'Coordinator 1' },
      message: 'test: name: "Coordinator 1" must be a DNS label',
    },
    { values: { trustDomain: 'Prod/x' }, message: 'test: trustDomain: "Prod/x" must be' },
    {
      values: { nodeCertificateLifetimeMs: '1s' },
      message: 'nodeCertificateLifetimeMs: "1s" must be a duration',
    },
    { values: { dataDir: '' }, message: 'test: dataDir: "" must be a path' },
  ])('rejects the settings $values', ({ values, message }) => {
    expect(() => parse(values)).toThrow(message);
  });
});
