import { parseCoordinatorConfig } from './config.js';

const parse = (values: Record<string, unknown>) =>
  parseCoordinatorConfig([{ source: 'test', values }], '/data');

describe('parseCoordinatorConfig', () => {
  it('fills in all defaults', () => {
    expect(parse({})).toEqual({
      host: '127.0.0.1',
      port: 8080,
      opsPort: 8081,
      state: 'lmdb',
      dataDir: '/data',
      leaseMs: 3_000,
      pingMs: 900,
      logLevel: 'info',
      logFormat: 'json',
      otlpEndpoint: undefined,
      auditRetentionMs: 30 * 86_400_000,
      eventRetentionMs: 30 * 86_400_000,
      auditBytes: 16 * 1024 ** 2,
      eventBytes: 4 * 1024 ** 2,
      requestBytes: 64 * 1024 ** 2,
      historyBytes: 64 * 1024 ** 2,
      weights: undefined,
    });
  });

  it('reads given values', () => {
    expect(
      parse({ port: '0', leaseMs: '10s', state: 'memory', weights: '1,0,0,0.5,0' }),
    ).toMatchObject({
      port: 0,
      leaseMs: 10_000,
      state: 'memory',
      weights: { locality: 1, reliability: 0, cost: 0, utilisation: 0.5, networkPenalty: 0 },
    });
  });

  it.each([
    {
      values: { port: 70_000 },
      says: 'test: port: "70000" must be a whole number from 0 to 65535',
    },
    { values: { state: 'etcd' }, says: 'test: state: "etcd" must be one of lmdb, memory' },
    {
      values: { prot: 1 },
      says: 'test: prot: is not a setting; the settings are host, port, opsPort',
    },
    {
      values: { leaseMs: '1s' },
      says: '--lease: a lease of 1000 ms is less than three times the ping interval of 900 ms',
    },
    { values: { weights: '0,0,0,0,0' }, says: 'must be five numbers from 0, not all 0' },
    { values: { weights: '1,2,3' }, says: 'must be five numbers from 0, not all 0' },
    { values: { weights: '1,1,1,1,-1' }, says: 'must be five numbers from 0, not all 0' },
    {
      values: { logLevel: 'loud' },
      says: 'test: logLevel: "loud" must be one of error, warn, info, debug',
    },
    { values: { host: '0.0.0.0' }, says: 'refusing to listen on 0.0.0.0 without TLS' },
    { values: { dataDir: '' }, says: 'test: dataDir: "" must be a path' },
  ])('refuses $values', ({ values, says }) => {
    expect(() => parse(values)).toThrow(says);
  });
});
