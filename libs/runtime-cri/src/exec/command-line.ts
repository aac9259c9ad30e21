import { CloudlessError } from '@cloudless/base';
import type { ExecRequest } from '@cloudless/runtime';

/**
 * Returns the command line for the container runtime. The Container Runtime Interface has no field
 * for the environment of a command. With variables, the command line therefore begins with the
 * `env` program of the image.
 * @throws kind `invalid`, naming the field.
 */
export function toCommandLine({ command, env }: ExecRequest): readonly string[] {
  const [executable = ''] = command;
  if (executable === '') throw new CloudlessError('invalid', 'command: must not be empty');
  if (env === undefined || Object.keys(env).length === 0) return command;
  const invalidName = Object.keys(env).find((name) => name === '' || /[=\0]/.test(name));
  if (invalidName !== undefined)
    throw new CloudlessError(
      'invalid',
      `env: ${JSON.stringify(invalidName)} is not a valid variable name`,
    );
  if (executable.includes('=')) {
    throw new CloudlessError(
      'invalid',
      'command: variables cannot be set for an executable with = in its name',
    );
  }
  return ['env', ...Object.entries(env).map(([name, value]) => `${name}=${value}`), ...command];
}
