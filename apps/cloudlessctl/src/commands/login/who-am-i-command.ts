import type { Timestamp } from '@bufbuild/protobuf/wkt';
import type { Command } from 'commander';
import { UserCredential_Kind as CredentialKind, WhoAmIResponseSchema } from '@cloudless/api';
import type { WhoAmIResponse } from '@cloudless/api';
import type { CommandTree } from '../../command-tree.js';
import { toMessageJson } from '../../call/cli-session.js';
import type { CliSession } from '../../call/cli-session.js';
import { formatStyledTime } from '../../output/style.js';
import { timestampMs } from '../../output/timestamp.js';
import { describeExpiry } from '../../views/expiry.js';
import { formatFields } from '../../views/sections.js';
import { formatGrants } from '../../views/user-view.js';

export function addWhoAmICommand(tree: CommandTree, parent: Command): void {
  tree.addCommand(
    parent,
    'whoami',
    'show the user of the calls, the roles and the end of the login',
    ({ session }) => printIdentity(session),
  );
}

/** Prints the identity under which the coordinator sees the calls of this session. */
export async function printIdentity(session: CliSession): Promise<void> {
  const identity = await session.users.whoAmI({}, session.getCallOptions());
  if (session.isStructured)
    return session.printValue(toMessageJson(WhoAmIResponseSchema, identity));
  await session.print(formatIdentity(session, identity));
  if (identity.principal === 'anonymous@loopback')
    await session.printNotice(
      'the cluster has no TLS: every process of this machine may make every call',
    );
}

function formatIdentity(
  { settings, style, nowMs }: CliSession,
  { principal, grants, credential }: WhoAmIResponse,
): string {
  const { server, context } = settings;
  const formatEnd = (end: Timestamp | undefined, note = ''): string =>
    end === undefined
      ? ''
      : `${describeExpiry(timestampMs(end), nowMs)} (${formatStyledTime(end, style)})${note}`;
  const roles =
    principal.startsWith('user/') && grants.length === 0 ? 'none' : formatGrants(grants);
  return formatFields([
    ['Server', server],
    ['Context', context ?? ''],
    ['Name', principal],
    ['Roles', roles],
    ['Credential', credential === undefined ? '' : describeCredential(credential)],
    ['Login', formatEnd(credential?.expiresAt)],
    // Before the login when no command is used in the meantime.
    [
      'Certificate',
      formatEnd(
        credential?.certificateExpiresAt,
        ', renewed by commands in the second half of its life',
      ),
    ],
  ]);
}

function describeCredential({
  id,
  kind,
  description,
}: NonNullable<WhoAmIResponse['credential']>): string {
  const form = kind === CredentialKind.CERTIFICATE ? 'client certificate' : 'token';
  return `${form} ${id}${description === '' ? '' : ` (${description})`}`;
}
