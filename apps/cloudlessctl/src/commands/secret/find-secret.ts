import { Code, ConnectError } from '@connectrpc/connect';
import type { AccessToken, Secret } from '@cloudless/api';
import { CliFailure, ExitCode } from '../../call/failure.js';
import type { CliSession } from '../../call/cli-session.js';
import type { WorkloadName } from '../../names.js';
import { suggestSimilar } from '../../suggest.js';

/** A secret without its values, and its valid access tokens without their texts. */
export interface FoundSecret {
  readonly secret: Secret;
  readonly accessTokens: readonly AccessToken[];
}

/**
 * Returns a secret without its values.
 * @throws {@link CliFailure} as {@link findSecretAndTokens} does.
 */
export async function findSecret(session: CliSession, name: WorkloadName): Promise<Secret> {
  return (await findSecretAndTokens(session, name)).secret;
}

/**
 * Returns a secret without its values, and its access tokens.
 * @throws {@link CliFailure} with exit code 3 when the secret does not exist; the message names a
 *   similar secret of the namespace, if there is one.
 */
export async function findSecretAndTokens(
  session: CliSession,
  { namespace, name }: WorkloadName,
): Promise<FoundSecret> {
  try {
    const { secret, accessTokens } = await session.secrets.getSecret(
      { namespace, name },
      session.getCallOptions(),
    );
    if (secret !== undefined) return { secret, accessTokens };
  } catch (reason) {
    if (!(reason instanceof ConnectError) || reason.code !== Code.NotFound) throw reason;
    const names = await session.secrets
      .listSecrets({ namespace, pageSize: 1_000 }, session.getCallOptions())
      .then((page) => page.secrets.map((secret) => secret.name))
      .catch((): string[] => []); // the first error is the one to report
    const hint = names.includes(name) ? '' : suggestSimilar(name, names);
    if (hint === '') throw reason;
    throw new CliFailure(ExitCode.notFound, `${reason.rawMessage}${hint}`, { cause: reason });
  }
  throw new CliFailure(ExitCode.error, 'the coordinator returned no secret');
}
