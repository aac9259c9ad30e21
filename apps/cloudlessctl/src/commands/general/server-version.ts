import { ServerInfoSchema } from '@cloudless/api';
import { toMessageJson } from '../../call/cli-session.js';
import type { LocalSession } from '../../call/local-session.js';
import { openSession } from '../../call/open-session.js';
import { getClientVersion } from './client-version.js';

/**
 * Time limit of `version` without `--timeout`. The command is also used to find out whether a
 * coordinator answers, so it does not wait for 30 s.
 */
const VERSION_TIMEOUT_MS = 3_000;

/** Prints the version of the coordinator; in JSON or YAML, together with that of cloudlessctl. */
export async function showServerVersion(localSession: LocalSession): Promise<void> {
  const session = await openSession(localSession);
  try {
    const server = await session.client.getServerInfo(
      {},
      session.getCallOptions(session.settings.timeoutMs ?? VERSION_TIMEOUT_MS),
    );
    if (session.isStructured)
      await session.printValue({
        ...getClientVersion(),
        server: toMessageJson(ServerInfoSchema, server),
      });
    else
      await session.print(
        `coordinator ${server.version} (cluster ${server.clusterId}, epoch ${server.epoch})\n`,
      );
  } finally {
    await session.close();
  }
}
