import { aScript } from '../testing/container-calls.js';
import { PROTOCOL } from '../wire/messages.js';
import { toStartRequest } from './start-request.js';

const hello = (...capabilities: readonly string[]) => ({
  hello: { type: 'hello', protocol: PROTOCOL, version: '1.2.3', pid: 7, capabilities } as const,
});
const dns = { dnsServers: ['10.96.0.10'], dnsSearches: ['svc.test'], dnsOptions: ['ndots:5'] };

describe('a start request for a supervisor', () => {
  it('keeps the DNS settings for a supervisor that accepts them', () => {
    const request = aScript('true', { network: dns });
    expect(toStartRequest(request, hello('dns.settings'), 0)).toEqual({ request });
  });

  it('leaves out the DNS settings for a supervisor of an earlier version, and says so', () => {
    const { network: _, ...request } = aScript('true', { network: dns });
    expect(toStartRequest({ ...request, network: dns }, hello(), 0)).toEqual({
      request,
      dnsProblem:
        'the running supervisor (process 7, version 1.2.3) lacks the capability dns.settings; a supervisor of an earlier version is replaced when its last container is removed',
    });
  });

  it('keeps other network settings, which the supervisor refuses', () => {
    const request = aScript('true', { network: { ...dns, hostname: 'a' } });
    expect(toStartRequest(request, hello(), 0).request.network).toEqual({ hostname: 'a' });
  });

  it('has a lease that is shorter by the time that the request has waited, and is refused after that', () => {
    const request = aScript('true', { lease: { leaseMs: 100, graceMs: 5 } });
    const lease = (waitedMs: number): unknown =>
      toStartRequest(request, hello('disconnect.exclusive'), waitedMs).request.lease;
    expect(lease(30)).toEqual({ leaseMs: 70, graceMs: 5 });
    expect(() => lease(100)).toThrow('no process was started');
  });
});
