// Finds the container runtime for tests: the socket in CLOUDLESS_CRI_SOCKET, or else the set-up of
// this folder while it runs.
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const setup = fileURLToPath(new URL('setup.mjs', import.meta.url));
/** The command that installs a container runtime, for the message that there is none. */
const INSTALL = 'sudo "$(command -v node)" tools/containers/setup.mjs install';

/**
 * Finds a container runtime.
 * @param env - Environment variables. With CLOUDLESS_CONTAINERS=required, tests fail without a
 *   runtime.
 * @returns `socket`, and in `env` the variables by which tests find the runtime; without a runtime,
 *   the reason in `whyNot`. `required` is true when tests must fail without a runtime.
 */
export function findContainers(env = process.env) {
  const required = env['CLOUDLESS_CONTAINERS'] === 'required';
  if (process.getuid?.() !== 0) return { required, whyNot: 'needs root', env: {} };
  const givenSocket = env['CLOUDLESS_CRI_SOCKET'] ?? '';
  if (givenSocket !== '') {
    return existsSync(givenSocket)
      ? { required, socket: givenSocket, env: {} }
      : {
          required,
          whyNot: `CLOUDLESS_CRI_SOCKET is ${givenSocket}, and there is no such socket`,
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
