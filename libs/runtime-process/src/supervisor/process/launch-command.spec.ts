import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { NetworkRequest } from '@cloudless/runtime';
import { aScript } from '../../testing/container-calls.js';
import {
  buildEnvironment,
  checkRequest,
  resolveExecutable,
  toSpawnError,
  withVariables,
} from './launch-command.js';

describe('the error for a command that cannot be started', () => {
  const context = {
    env: { PATH: '/usr/bin:/bin' },
    workingDir: '/var/lib/cloudless/containers/0123',
  };

  it.each([
    { name: './missing', message: 'command: no executable file ./missing' },
    { name: 'bin/missing', message: 'command: no executable file bin/missing' },
    { name: '/no/such/file', message: 'command: no executable file /no/such/file' },
    {
      name: 'missing-program',
      message: 'command: no executable missing-program in PATH /usr/bin:/bin',
    },
  ])(
    'names the program $name as the caller did, without a directory of the agent',
    ({ name, message }) => {
      expect(() => resolveExecutable([name], context)).toThrow(
        expect.objectContaining({ kind: 'invalid', message }),
      );
    },
  );

  it('names the program as the caller did when the system refuses the start', () => {
    const cause = Object.assign(new Error('spawn EACCES'), { code: 'EACCES' });
    expect(toSpawnError(cause, './run')).toMatchObject({
      kind: 'invalid',
      message: 'command: ./run cannot be started',
    });
  });
});

describe('checkRequest', () => {
  it('rejects port names that result in the same environment variable', () => {
    const port = { port: 80, protocol: 'tcp' } as const;
    const checkPorts = (...names: readonly string[]): (() => void) => {
      const request = aScript('true', { ports: names.map((name) => ({ name, ...port })) });
      return () => checkRequest(request);
    };
    expect(checkPorts('web-1', 'web_1')).toThrow(expect.objectContaining({ kind: 'invalid' }));
    expect(checkPorts('web-1', 'web-2')).not.toThrow();
  });
});

describe('checkRequest with network settings', () => {
  const server = '10.96.0.10';
  const check = (network: NetworkRequest) => (): void => checkRequest(aScript('true', { network }));

  it('accepts DNS settings', () => {
    const dnsServers = [server, 'fd00::1'];
    expect(check({ dnsServers, dnsSearches: ['a.b'], dnsOptions: ['ndots:5'] })).not.toThrow();
  });

  it.each([
    { name: 'a host name as a server', network: { dnsServers: ['dns.test'] }, field: 'dnsServers' },
    {
      name: 'a search domain of two lines',
      network: { dnsServers: [server], dnsSearches: ['a\nnameserver 192.0.2.1'] },
      field: 'dnsSearches',
    },
    {
      name: 'an empty option',
      network: { dnsServers: [server], dnsOptions: [''] },
      field: 'dnsOptions',
    },
  ])('refuses $name', ({ network, field }) => {
    expect(check(network)).toThrow(
      expect.objectContaining({
        kind: 'invalid',
        message: expect.stringContaining(`network.${field}`),
      }),
    );
  });

  it.each<{ readonly network: NetworkRequest; readonly field: string }>([
    { network: { dnsServers: [server], hostNetwork: true }, field: 'hostNetwork' },
    { network: { hostname: 'a' }, field: 'hostname' },
    { network: { extraHosts: [] }, field: 'extraHosts' },
    { network: { egress: [] }, field: 'egress' },
  ])('refuses $field, which needs a container', ({ network, field }) => {
    expect(check(network)).toThrow(
      expect.objectContaining({
        kind: 'unimplemented',
        message: `network.${field}: the process runtime has no network of its own`,
      }),
    );
  });
});

describe('buildEnvironment', () => {
  const request = aScript('true', { env: { PATH: '/own', PORT: '1', OWN: 'x' } });
  const endpoints = [
    { portName: 'http', ip: '127.0.0.1', port: 2001 },
    { portName: 'dns-in', ip: '127.0.0.1', port: 2002 },
  ];

  it('prefers ports and mark to variables of the request, and these to the default PATH', () => {
    expect(buildEnvironment(request, endpoints, { path: '/bin', home: '/work' })).toEqual({
      PATH: '/own',
      HOME: '/work',
      OWN: 'x',
      PORT: '2001',
      CLOUDLESS_PORT_HTTP: '2001',
      CLOUDLESS_PORT_DNS_IN: '2002',
      CLOUDLESS_CONTAINER_ID: request.containerId,
    });
  });
});

describe('withVariables', () => {
  it('keeps the mark of the container when a command sets variables', () => {
    const env = { CLOUDLESS_CONTAINER_ID: 'its own', NAME: 'a' };
    expect(withVariables(env, { NAME: 'b', CLOUDLESS_CONTAINER_ID: 'another' })).toEqual({
      NAME: 'b',
      CLOUDLESS_CONTAINER_ID: 'its own',
    });
  });
});

describe('resolveExecutable', () => {
  it('fails with exit code 127 when the interpreter of a script is missing', () => {
    const workingDir = mkdtempSync(path.join(tmpdir(), 'cloudless-script-'));
    const resolveScript = (name: string, interpreter: string): (() => string) => {
      writeFileSync(path.join(workingDir, name), `#!${interpreter}\n`, { mode: 0o700 });
      return () => resolveExecutable([`./${name}`], { env: {}, workingDir });
    };
    expect(resolveScript('missing', '/no/such/interpreter')).toThrow(
      expect.objectContaining({ kind: 'invalid', exitCode: 127 }),
    );
    expect(resolveScript('present', '/bin/sh')()).toBe(path.join(workingDir, 'present'));
    rmSync(workingDir, { recursive: true });
  });
});
