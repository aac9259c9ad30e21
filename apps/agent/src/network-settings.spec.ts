import type { AgentConfig } from './agent-config.js';
import { parseAgentConfig } from './config.js';

const parse = (values: Readonly<Record<string, string>>): AgentConfig =>
  parseAgentConfig([{ source: 'flags', values, nameOf: (field) => field }]);
const TLS = { name: 'a1', coordinator: 'https://10.0.0.1:8080' };

describe('settings of the network of an agent', () => {
  it('have an address for other proxies, with the name by which they reach this node', () => {
    const settings = { meshListen: '0.0.0.0:9443', meshAdvertise: 'node-1.example:9443' };
    expect(parse({ ...TLS, ...settings })).toMatchObject({
      network: 'auto',
      meshListen: { host: '0.0.0.0', port: 9_443 },
      meshAdvertise: 'node-1.example:9443',
    });
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
      values: { ...TLS, meshAdvertise: '10.0.0.5:9443' },
      problem: 'needs --mesh-listen',
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
      problem: 'must be host:port',
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
    expect(() => parse(values)).toThrow(problem);
  });
});
