import { toBinary, toJsonString } from '@bufbuild/protobuf';
import { ConnectError } from '@connectrpc/connect';
import { EventSchema, SecretSchema, createSecretsClient } from '@cloudless/api';
import { ApiTestBed } from '../testing/api-test-bed.js';

const CANARY = 'canary-7f3a9c51-value';
const NEXT_CANARY = 'canary-1b8e44d0-value';
const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const audiences = ['workload/*'];

/** Returns true when the bytes have one of the values, in plain text, base64 or hex. */
function hasCanary(haystack: Uint8Array | string): boolean {
  const buffer = Buffer.from(haystack as Uint8Array);
  return [CANARY, NEXT_CANARY].some((canary) => {
    const hex = Buffer.from(canary).toString('hex');
    // Base64 of a text depends on its offset: the middle of each of the three forms is the same.
    const base64s = [0, 1, 2].map((pad) =>
      Buffer.from(' '.repeat(pad) + canary)
        .toString('base64')
        .slice(4, -4),
    );
    return [canary, hex, ...base64s].some((form) => buffer.includes(form));
  });
}

/** The places that a value must never reach, with what they contain. */
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

/** The places with a value. */
async function findLeaks(...found: Parameters<typeof readPlaces>): Promise<readonly string[]> {
  const places = await readPlaces(...found);
  return [...places].filter(([, contents]) => contents.some(hasCanary)).map(([place]) => place);
}

describe('values of secrets', () => {
  let bed: ApiTestBed;
  beforeEach(async () => {
    bed = await ApiTestBed.open();
  });
  afterEach(() => bed.stop());

  it('are nowhere but in ciphertexts after all calls and refused calls', async () => {
    const client = createSecretsClient(bed.transport);
    const errors: unknown[] = [];
    const responses: Uint8Array[] = [];
    const refused = async (call: Promise<unknown>): Promise<void> => {
      await expect(call.catch((reason: unknown) => void errors.push(reason))).resolves.toBe(
        undefined,
      );
    };
    const request = { name: 'db', data: { k: bytes(CANARY) }, audiences, requestId: 'r1' };
    responses.push(toBinary(SecretSchema, await client.createSecret(request)));
    responses.push(toBinary(SecretSchema, await client.createSecret(request)));
    const update = { name: 'db', data: { k: bytes(NEXT_CANARY) }, requestId: 'r2' };
    responses.push(toBinary(SecretSchema, await client.updateSecret(update)));
    const secret = (await client.getSecret({ name: 'db' })).secret;
    if (secret !== undefined) responses.push(toBinary(SecretSchema, secret));
    for (const listed of (await client.listSecrets({})).secrets)
      responses.push(toBinary(SecretSchema, listed));
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

  it.each([CANARY, Buffer.from(CANARY).toString('base64'), Buffer.from(CANARY).toString('hex')])(
    'are found in every place when they are planted there as %s',
    async (planted) => {
      bed.problems.push(planted);
      await bed.state.commit(
        bed.state.transaction().event({ reason: 'Planted', message: planted }),
      );
      const leaks = await findLeaks(bed, [new Error(planted)], [bytes(planted)]);
      expect(leaks).toEqual(['store', 'backup', 'events', 'log', 'errors', 'responses']);
    },
  );
});
