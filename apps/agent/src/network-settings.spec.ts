import type { AgentConfig } from './agent-config.js';
import { parseAgentConfig } from './config.js';
import { findDefaultMeshPort } from './network-settings.js';

const parse = (values: Readonly<Record<string, string>>): AgentConfig =>
  parseAgentConfig([{ source: 'flags', values, nameOf: (field) => field }]);
const TLS = { name: 'a1', coordinator: 'https://10.0.0.1:8080' };

describe('settings of the network of an agent', () => {
  it('have an address for other proxies, with the address at which they reach this node', () => {
    const settings = { meshListen: '0.0.0.0:9443', meshAdvertise: '192.0.2.7:9443' };
    expect(parse({ ...TLS, ...settings })).toMatchObject({
      network: 'auto',
      meshListen: { host: '0.0.0.0', port: 9_443 },
      meshAdvertise: '192.0.2.7:9443',
    });
  });

  it('may turn the listener for other proxies off', () => {
    expect(parse({ ...TLS, meshListen: 'none' }).meshListen).toBe('none');
    expect(parse({ name: 'a1', meshListen: 'none' }).meshListen).toBe('none');
  });

  it('may have an address for other proxies with the listener that is the default', () => {
    expect(parse({ ...TLS, meshAdvertise: '203.0.113.7:9443' })).toMatchObject({
      meshListen: undefined,
      meshAdvertise: '203.0.113.7:9443',
    });
  });

  const coordinator = (address: string) => ({ coordinator: address });
  it.each([
    { name: 'a coordinator elsewhere', values: {}, port: 9_443 },
    { name: 'a name', values: coordinator('https://c.example:8080'), port: 9_443 },
    { name: 'an IPv6 address', values: coordinator('https://[fd00::1]:8080'), port: 9_443 },
    { name: 'no TLS', values: coordinator('http://127.0.0.1:8080') },
    { name: 'loopback', values: coordinator('https://127.0.0.1:8080') },
    { name: 'loopback, IPv6', values: coordinator('https://[::1]:8080') },
    { name: 'localhost', values: coordinator('https://localhost:8080') },
    {
      name: 'loopback first',
      values: coordinator('https://127.0.0.1:8080,https://10.0.0.1:8080'),
    },
    {
      name: 'loopback later',
      values: coordinator('https://10.0.0.1:8080,https://127.0.0.1:8080'),
      port: 9_443,
    },
    { name: 'an address', values: { meshListen: '10.0.0.5:9000' } },
    { name: 'none', values: { meshListen: 'none' } },
    { name: 'a port range with 9443', values: { portRange: '9000-9999' } },
    { name: 'a port range that ends before 9443', values: { portRange: '9000-9442' }, port: 9_443 },
    { name: 'an ingress at 9443', values: { ingressHttps: '0.0.0.0:9443' } },
    { name: 'an ingress at 443', values: { ingressHttps: '0.0.0.0:443' }, port: 9_443 },
    { name: 'AgentService at 9443', values: { listen: '10.0.0.5:9443' } },
    { name: 'metrics at 9443', values: { opsListen: '127.0.0.1:9443' } },
  ])('have $port as port for other proxies with $name', ({ values, port }) => {
    expect(findDefaultMeshPort(parse({ ...TLS, ...values }))).toBe(port);
  });

  it.each([
    {
      name: 'an address for other proxies in a cluster without TLS',
      values: { name: 'a1', meshListen: '127.0.0.1:9443' },
      problem: 'traffic between machines is always encrypted',
    },
    {
      name: 'all addresses of the machine without an advertised address',
      values: { ...TLS, meshListen: '0.0.0.0:9443' },
      problem: 'add --mesh-advertise',
    },
    {
      name: 'an address for routes without a proxy',
      values: { name: 'a1', ingressHttp: '0.0.0.0:80', network: 'off' },
      problem: 'has no effect with --network off',
    },
    {
      name: 'an advertised address without a listener',
      values: { name: 'a1', coordinator: 'https://localhost:1', meshAdvertise: '10.0.0.5:9443' },
      problem: 'needs --mesh-listen, .*: with these settings there is none by default',
    },
    {
      name: 'an advertised address of a listener that is off',
      values: { ...TLS, meshAdvertise: '10.0.0.5:9443', meshListen: 'none' },
      problem: 'has no effect with --mesh-listen none',
    },
    {
      name: 'an advertised address without a proxy',
      values: { ...TLS, meshAdvertise: '10.0.0.5:9443', network: 'off' },
      problem: 'has no effect with --network off',
    },
    {
      name: 'an address for other proxies without a proxy',
      values: { ...TLS, meshListen: '10.0.0.5:9443', network: 'off' },
      problem: 'has no effect with --network off',
    },
    {
      name: 'a port among those of workloads',
      values: { ...TLS, meshListen: '10.0.0.5:20005' },
      problem: 'within the port range of workloads',
    },
    {
      name: 'an advertised address that other nodes cannot dial',
      values: { ...TLS, meshListen: '10.0.0.5:9443', meshAdvertise: '0.0.0.0:9443' },
      problem: 'must be an IP address and a port',
    },
    {
      name: 'a host name as advertised address, which proxies do not resolve',
      values: { ...TLS, meshListen: '10.0.0.5:9443', meshAdvertise: 'node-1.example:9443' },
      problem: 'must be an IP address and a port',
    },
    {
      name: 'a share of traces above 1',
      values: { ...TLS, traceShare: '1.5' },
      problem: '"1.5" must be a number from 0 to 1',
    },
    {
      name: 'a share of traces that is no number',
      values: { ...TLS, traceShare: '1%' },
      problem: '"1%" must be a number from 0 to 1',
    },
    { name: 'an unknown mode', values: { ...TLS, network: 'maybe' }, problem: 'maybe' },
  ])('refuse $name', ({ values, problem }) => {
    expect(() => parse(values)).toThrow(new RegExp(problem));
  });
});
