import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
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
    { name: './missing', says: 'command: no executable file ./missing' },
    { name: 'bin/missing', says: 'command: no executable file bin/missing' },
    { name: '/no/such/file', says: 'command: no executable file /no/such/file' },
    {
      name: 'missing-program',
      says: 'command: no executable missing-program in PATH /usr/bin:/bin',
    },
  ])(
    'names the program like the caller, without the directory of the agent: $name',
    ({ name, says }) => {
      expect(() => resolveExecutable([name], context)).toThrow(
        expect.objectContaining({ kind: 'invalid', message: says }),
      );
    },
  );

  it('names the program like the caller when the system refuses the start', () => {
    const cause = Object.assign(new Error('spawn EACCES'), { code: 'EACCES' });
    expect(toSpawnError(cause, './run')).toMatchObject({
      kind: 'invalid',
      message: 'command: ./run cannot be started',
    });
  });
});

describe('checkRequest', () => {
  it('refuses port names that make the same variable', () => {
    const port = { port: 80, protocol: 'tcp' } as const;
    const names = (...ports: readonly string[]): (() => void) => {
      const request = aScript('true', { ports: ports.map((name) => ({ name, ...port })) });
      return () => checkRequest(request);
    };
    expect(names('web-1', 'web_1')).toThrow(expect.objectContaining({ kind: 'invalid' }));
    expect(names('web-1', 'web-2')).not.toThrow();
  });
});

describe('buildEnvironment', () => {
  const request = aScript('true', { env: { PATH: '/own', PORT: '1', OWN: 'x' } });
  const endpoints = [
    { portName: 'http', ip: '127.0.0.1', port: 2001 },
    { portName: 'dns-in', ip: '127.0.0.1', port: 2002 },
  ];

  it('sets ports and the mark after the variables of the request', () => {
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

  it('keeps the mark of the container when a command sets variables', () => {
    const env = { CLOUDLESS_CONTAINER_ID: 'its own', NAME: 'a' };
    expect(withVariables(env, { NAME: 'b', CLOUDLESS_CONTAINER_ID: 'another' })).toEqual({
      NAME: 'b',
      CLOUDLESS_CONTAINER_ID: 'its own',
    });
  });
});

describe('resolveExecutable', () => {
  it('refuses a script whose interpreter is missing, with exit code 127', () => {
    const workingDir = mkdtempSync(path.join(tmpdir(), 'cloudless-script-'));
    const script = (name: string, interpreter: string): (() => string) => {
      writeFileSync(path.join(workingDir, name), `#!${interpreter}\n`, { mode: 0o700 });
      return () => resolveExecutable([`./${name}`], { env: {}, workingDir });
    };
    expect(script('missing', '/no/such/interpreter')).toThrow(
      expect.objectContaining({ kind: 'invalid', exitCode: 127 }),
    );
    expect(script('present', '/bin/sh')()).toBe(path.join(workingDir, 'present'));
    rmSync(workingDir, { recursive: true });
  });
});
