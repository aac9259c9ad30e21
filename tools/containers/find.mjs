// Which container runtime the tests take: the one named by CLOUDLESS_CRI_SOCKET, else the set-up of
// this folder when it runs.
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const setup = fileURLToPath(new URL('setup.mjs', import.meta.url));
/** The one command that makes tests on containers run, for whoever reads why they did not. */
const INSTALL = 'sudo "$(command -v node)" tools/containers/setup.mjs install';

/**
 * Looks for a container runtime.
 * @param env - CLOUDLESS_CONTAINERS=required makes it an error for tests when there is none.
 * @returns `socket` and the variables that tests take it from (`env`); or `whyNot`. `required` says
 *   whether that is a failure.
 */
export function findContainers(env = process.env) {
  const required = env['CLOUDLESS_CONTAINERS'] === 'required';
  if (process.getuid?.() !== 0) return { required, whyNot: 'needs root', env: {} };
  const named = env['CLOUDLESS_CRI_SOCKET'] ?? '';
  if (named !== '') {
    return existsSync(named)
      ? { required, socket: named, env: {} }
      : {
          required,
          whyNot: `CLOUDLESS_CRI_SOCKET is ${named}, and there is no such socket`,
          env: {},
        };
  }
  const { status, stdout, stderr } = spawnSync(process.execPath, [setup, 'status', '--json'], {
    env,
    encoding: 'utf8',
  });
  if (status !== 0)
    return {
      required,
      whyNot: stderr.trim() || `no containerd runs for them; \`${INSTALL}\` starts one`,
      env: {},
    };
  const { socket, dir } = JSON.parse(stdout);
  const variables = {
    CLOUDLESS_CRI_SOCKET: socket,
    CLOUDLESS_CRI_CONTAINERD_CONFIG: `${dir}/etc/containerd.toml`,
  };
  return { required, socket, dir, env: variables };
}
