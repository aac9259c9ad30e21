import { toBinary, toJsonString, type DescMessage, type MessageShape } from '@bufbuild/protobuf';
import { ConnectError, createClient } from '@connectrpc/connect';
import {
  EventSchema,
  GetSecretAuditLogResponseSchema,
  GetSecretResponseSchema,
  ListRoutesResponseSchema,
  ListSecretsResponseSchema,
  NetworkService,
  NodeNetworkService,
  RevokeAccessTokenResponseSchema,
  RouteSchema,
  SecretSchema,
  ValidateAccessTokenResponseSchema,
  createSecretsClient,
  type SecretsClient,
} from '@cloudless/api';
import { createAccessToken } from '@cloudless/identity';
import { createLeakSearch } from '@cloudless/identity/testing';
import { ApiTestBed } from '../testing/api-test-bed.js';
import { createCertificate } from '../testing/certificate-pairs.js';

const CANARY = 'canary-7f3a9c51-value';
const NEXT_CANARY = 'canary-1b8e44d0-value';
const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const audiences = ['workload/*', 'ci'];

/** Values and secret parts of tokens that must not leak. */
const secretTexts = new Set<string>();
const hasLeaked = createLeakSearch(secretTexts);

/** The places that a value or token must never reach, with what they contain. */
async function readPlaces(
  bed: ApiTestBed,
  errors: readonly unknown[],
  responses: readonly Uint8Array[],
): Promise<ReadonlyMap<string, readonly (Uint8Array | string)[]>> {
  const { entries } = await bed.store.range({ prefix: '', limit: 10_000 });
  const backup: Uint8Array[] = [];
  for await (const chunk of bed.state.backup()) backup.push(chunk);
  return new Map<string, readonly (Uint8Array | string)[]>([
    ['store', entries.flatMap(({ key, value }) => [key, value])],
    ['backup', [Buffer.concat(backup)]],
    ['events', bed.events().map((event) => toJsonString(EventSchema, event))],
    ['log', bed.problems],
    ['errors', errors.map((error) => JSON.stringify(describeError(error)))],
    ['responses', responses],
  ]);
}

function describeError(reason: unknown): unknown {
  const { message, rawMessage, details, metadata } = ConnectError.from(reason);
  return { message, rawMessage, details, metadata: [...metadata] };
}

/** The places with a value or token. */
async function findLeaks(...found: Parameters<typeof readPlaces>): Promise<readonly string[]> {
  const places = await readPlaces(...found);
  return [...places].filter(([, contents]) => contents.some(hasLeaked)).map(([place]) => place);
}

describe('values of secrets and texts of access tokens', () => {
  let bed: ApiTestBed;
  let client: SecretsClient;
  let errors: unknown[];
  let responses: Uint8Array[];
  beforeEach(async () => {
    bed = await ApiTestBed.open();
    client = createSecretsClient(bed.transport);
    [errors, responses] = [[], []];
    secretTexts.clear();
    for (const canary of [CANARY, NEXT_CANARY]) secretTexts.add(canary);
  });
  afterEach(() => bed.stop());

  const refused = async (call: Promise<unknown>): Promise<void> => {
    await expect(call.catch((reason: unknown) => void errors.push(reason))).resolves.toBe(
      undefined,
    );
  };
  const answered = async <Desc extends DescMessage>(
    schema: Desc,
    call: Promise<MessageShape<Desc>>,
  ): Promise<void> => {
    responses.push(toBinary(schema, await call));
  };
  const noteToken = (text: string): string => {
    secretTexts.add(text.split('.')[2] ?? '');
    return text;
  };

  it('are nowhere but in ciphertexts after all calls and refused calls about secrets', async () => {
    const request = { name: 'db', data: { k: bytes(CANARY) }, audiences, requestId: 'r1' };
    await answered(SecretSchema, client.createSecret(request));
    await answered(SecretSchema, client.createSecret(request));
    const update = { name: 'db', data: { k: bytes(NEXT_CANARY) }, requestId: 'r2' };
    await answered(SecretSchema, client.updateSecret(update));
    await answered(GetSecretResponseSchema, client.getSecret({ name: 'db' }));
    await client.rotateMasterKey({ reEncryptAll: true, requestId: 'r3' });
    await answered(ListSecretsResponseSchema, client.listSecrets({}));
    await refused(client.createSecret({ ...request, requestId: '' }));
    await refused(client.createSecret({ ...request, data: { k: bytes(`${CANARY}-2`) } }));
    await refused(client.createSecret({ ...request, name: 'UPPER', requestId: '' }));
    await refused(client.createSecret({ ...request, data: { 'a/b': bytes(CANARY) } }));
    await refused(
      client.createSecret({ ...request, name: 'big', data: { k: bytes(CANARY.repeat(60_000)) } }),
    );
    await refused(client.updateSecret({ ...update, name: 'none' }));
    await refused(client.updateSecret({ ...update, expectedGeneration: 9n, requestId: '' }));
    await client.updateSecret({ name: 'db', immutable: true });
    await refused(client.updateSecret({ name: 'db', data: { k: bytes(CANARY) } }));
    expect(errors).toHaveLength(8);
    expect(await findLeaks(bed, errors, responses)).toEqual([]);
    await client.deleteSecret({ name: 'db' });
    expect(await findLeaks(bed, errors, responses)).toEqual([]);
  });

  it('are only in the answers to whom they are for, after all calls and refused calls with tokens', async () => {
    await client.createSecret({ name: 'db', data: { k: bytes(CANARY) }, audiences });
    const generate = async (maxUses: number) => {
      const { token, text } = await client.generateAccessToken({
        name: 'db',
        audience: 'ci',
        maxUses,
      });
      return { id: token?.id ?? '', text: noteToken(text) };
    };
    const [once, many, revoked] = [await generate(1), await generate(-1), await generate(1)];
    const use = (accessToken: string, fields: Parameters<SecretsClient['getSecret']>[0] = {}) =>
      client.getSecret({ name: 'db', audience: 'ci', accessToken, ...fields });
    const validate = (accessToken: string, fields: object = {}) =>
      client.validateAccessToken({ name: 'db', audience: 'ci', accessToken, ...fields });
    const revoke = (fields: object) => client.revokeAccessToken({ name: 'db', ...fields });
    const unknown = noteToken(createAccessToken((count) => new Uint8Array(count).fill(9)).text);
    const { data } = await use(once.text);
    expect(hasLeaked(data['k'] ?? '')).toBe(true);
    await use(many.text);
    await answered(RevokeAccessTokenResponseSchema, revoke({ accessToken: revoked.text }));
    for (const text of [once.text, many.text, revoked.text, unknown])
      await answered(ValidateAccessTokenResponseSchema, validate(text));
    await answered(GetSecretResponseSchema, client.getSecret({ name: 'db' }));
    // Refused tokens.
    for (const text of [once.text, revoked.text, unknown, many.text.slice(0, -1)])
      await refused(use(text));
    await refused(use(many.text, { audience: 'cd' }));
    await refused(use(many.text, { name: 'none' }));
    await refused(use(many.text, { version: 9 }));
    await refused(revoke({ accessToken: unknown }));
    // Texts of tokens in wrong fields, and malformed requests.
    await refused(use(many.text, { audience: '' }));
    await refused(use(many.text.repeat(3)));
    await refused(use('ci', { audience: many.text }));
    await refused(use('db', { name: many.text }));
    await refused(use(many.text, { name: '' }));
    await refused(client.getSecret({ name: many.text }));
    await refused(client.getSecret({ name: 'db', audience: many.text }));
    await refused(client.generateAccessToken({ name: 'db', audience: many.text }));
    await refused(client.generateAccessToken({ name: many.text, audience: 'ci' }));
    await refused(revoke({ tokenId: many.text }));
    await refused(revoke({ accessToken: many.text, all: true }));
    await refused(validate(many.text.repeat(3)));
    await answered(ValidateAccessTokenResponseSchema, validate('db', { name: many.text }));
    await refused(validate(many.text, { audience: '' }));
    await refused(client.deleteSecret({ name: 'db' }));
    const log = client.getSecretAuditLog({ name: 'db', pageSize: 1_000 });
    await answered(GetSecretAuditLogResponseSchema, log);
    expect((await log).entries.length).toBeGreaterThan(20);
    expect(errors).toHaveLength(22);
    expect(await findLeaks(bed, errors, responses)).toEqual([]);
    await client.updateSecret({ name: 'db', revokeExistingTokens: true });
    await client.deleteSecret({ name: 'db', revokeTokens: true });
    expect(await findLeaks(bed, errors, responses)).toEqual([]);
    // The same check finds a real token in the answer that has it.
    const { text } = await client
      .createSecret({ name: 'db', data: { k: bytes(CANARY) }, audiences })
      .then(() => generate(1));
    expect(await findLeaks(bed, [new Error(text)], [bytes(text)])).toEqual(['errors', 'responses']);
  });

  it('are only in the answer to the node that serves a route, of all calls about certificates of routes', async () => {
    const [pair, next] = await Promise.all([createCertificate(), createCertificate()]);
    const keyLines = [pair, next].map((each) =>
      Buffer.from(each['tls.key']).toString().split('\n'),
    );
    // The first two lines of each key in PEM.
    for (const lines of keyLines) for (const line of lines.slice(1, 3)) secretTexts.add(line);
    const routes = createClient(NetworkService, bed.transport);
    const proxy = createClient(NodeNetworkService, bed.transport);
    await bed.putNode('n1');
    const unfit = { ...pair, 'tls.key': next['tls.key'] };
    const swapped = { ...pair, 'tls.crt': pair['tls.key'] };
    const tls = { certificateSecret: 'cert' };
    const route = {
      name: 'web',
      spec: { hosts: ['a.b'], rules: [{ service: 'w', port: '1' }], tls },
    };
    const call = { nodeId: 'n1', namespace: 'default', name: 'web' };
    const secret = { name: 'cert', audiences: ['route/*'] };
    for (const data of [unfit, swapped]) {
      await answered(SecretSchema, client.createSecret({ ...secret, data }));
      await refused(routes.createRoute({ ...route, requestId: 'r1' }));
      await client.deleteSecret(secret);
    }
    await answered(SecretSchema, client.createSecret({ ...secret, data: pair }));
    await answered(RouteSchema, routes.createRoute({ ...route, requestId: 'r2' }));
    await answered(RouteSchema, routes.createRoute({ ...route, requestId: 'r2' }));
    for (const data of [unfit, swapped]) await refused(client.updateSecret({ name: 'cert', data }));
    await answered(
      SecretSchema,
      client.updateSecret({ name: 'cert', data: next, requestId: 'r3' }),
    );
    const { key } = await proxy.getRouteCertificate(call);
    expect(hasLeaked(key)).toBe(true);
    await refused(proxy.getRouteCertificate({ ...call, nodeId: 'n2' }));
    await client.updateSecret({ name: 'cert', audiences: ['ci'] });
    await refused(proxy.getRouteCertificate(call));
    const misplaced = { certificateSecret: keyLines[0]?.[1] ?? '' };
    await refused(routes.updateRoute({ name: 'web', spec: { tls: misplaced } }));
    await refused(client.deleteSecret({ name: 'cert' }));
    await answered(RouteSchema, routes.getRoute({ name: 'web' }));
    await answered(ListRoutesResponseSchema, routes.listRoutes({}));
    await answered(GetSecretResponseSchema, client.getSecret({ name: 'cert' }));
    expect(errors).toHaveLength(8);
    expect(await findLeaks(bed, errors, responses)).toEqual([]);
    expect(await findLeaks(bed, errors, [...responses, key])).toEqual(['responses']);
  });

  it.each(
    [CANARY, createAccessToken((count) => new Uint8Array(count).fill(5)).text].flatMap((text) =>
      (['utf8', 'base64', 'base64url', 'hex'] as const).map((form) => ({ text, form })),
    ),
  )('are found in every place when $text is planted there as $form', async ({ text, form }) => {
    if (text !== CANARY) noteToken(text);
    const planted = Buffer.from(text).toString(form);
    bed.problems.push(planted);
    await bed.state.commit(bed.state.transaction().event({ reason: 'Planted', message: planted }));
    const leaks = await findLeaks(bed, [new Error(planted)], [bytes(planted)]);
    expect(leaks).toEqual(['store', 'backup', 'events', 'log', 'errors', 'responses']);
  });
});
