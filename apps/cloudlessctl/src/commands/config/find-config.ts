import { Code, ConnectError } from '@connectrpc/connect';
import type { Config } from '@cloudless/api';
import { CliFailure, ExitCode } from '../../call/failure.js';
import type { CliSession } from '../../call/cli-session.js';
import type { WorkloadName } from '../../names.js';
import { suggestSimilar } from '../../suggest.js';

/**
 * Returns a config with the values of a version.
 * @param version - Default: 0, the newest.
 * @throws {@link CliFailure} with exit code 3 when the config does not exist; the message names a
 *   similar config of the namespace, if there is one.
 */
export async function findConfig(
  session: CliSession,
  { namespace, name }: WorkloadName,
  version = 0,
): Promise<Config> {
  try {
    return await session.configs.getConfig({ namespace, name, version }, session.getCallOptions());
  } catch (reason) {
    if (!(reason instanceof ConnectError) || reason.code !== Code.NotFound) throw reason;
    const names = await session.configs
      .listConfigs({ namespace, pageSize: 1_000 }, session.getCallOptions())
      .then((page) => page.configs.map((config) => config.name))

      .catch((): string[] => []); // the first error is the one to report
    const hint = names.includes(name) ? '' : suggestSimilar(name, names);
    if (hint === '') throw reason;
    throw new CliFailure(ExitCode.notFound, `${reason.rawMessage}${hint}`, { cause: reason });
  }
}
