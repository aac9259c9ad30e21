import { resolveExecutable, toSpawnError } from './launch-command.js';

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
