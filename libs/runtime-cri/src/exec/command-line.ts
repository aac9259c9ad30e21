import { CloudlessError } from '@cloudless/base';
import type { ExecRequest } from '@cloudless/runtime';

/**
 * What the runtime is to run. The interface has no variables for commands, so the image's own `env`
 * sets them.
 * @throws kind `invalid`, naming the field.
 */
export function commandLineFor({ command, env }: ExecRequest): readonly string[] {
  const [executable = ''] = command;
  if (executable === '') throw new CloudlessError('invalid', 'command: must not be empty');
  if (env === undefined || Object.keys(env).length === 0) return command;
  const wrong = Object.keys(env).find((name) => name === '' || /[=\0]/.test(name));
  if (wrong !== undefined)
    throw new CloudlessError('invalid', `env: ${JSON.stringify(wrong)} is no name of a variable`);
  if (executable.includes('=')) {
    throw new CloudlessError(
      'invalid',
      'command: an executable with = in its name cannot be given variables',
    );
  }
  return ['env', ...Object.entries(env).map(([name, value]) => `${name}=${value}`), ...command];
}
