// A gRPC client for the few calls of the container runtime interface (CRI, runtime.v1) that set-up,
// check, removal and tests need. Written by hand, so that root can run the set-up before any npm
// package is installed.
import { connect } from 'node:http2';
import { connect as connectSocket } from 'node:net';
import { decode, encode } from './protobuf.mjs';

/**
 * Schemas of messages for protobuf.mjs, with the field numbers of
 * k8s.io/cri-api/pkg/apis/runtime/v1/api.proto. Fields that are not listed are skipped.
 */
const metadata = { name: [1, 'string'], uid: [2, 'string'], namespace: [3, 'string'] };
const podConfig = { metadata: [1, metadata], hostname: [2, 'string'], logDirectory: [3, 'string'] };
const image = { image: [1, 'string'] };
const pod = { podSandboxId: [1, 'string'] };
const container = { containerId: [1, 'string'] };
const condition = {
  type: [1, 'string'],
  status: [2, 'bool'],
  reason: [3, 'string'],
  message: [4, 'string'],
};
/** One entry of a map from text to text. */
const entry = { key: [1, 'string'], value: [2, 'string'] };
const containerConfig = {
  metadata: [1, metadata],
  image: [2, image],
  env: [6, entry, 'repeated'],
  logPath: [11, 'string'],
};
const podStatus = { id: [1, 'string'], state: [3, 'number'], network: [5, { ip: [1, 'string'] }] };

/** Service (default RuntimeService), request and response of each call. */
const calls = {
  Status: { request: {}, response: { status: [1, { conditions: [1, condition, 'repeated'] }] } },
  ListPodSandbox: {
    request: {},
    response: { items: [1, { id: [1, 'string'], labels: [5, entry, 'repeated'] }, 'repeated'] },
  },
  ListContainers: {
    request: {},
    response: {
      containers: [
        1,
        { id: [1, 'string'], state: [6, 'number'], labels: [8, entry, 'repeated'] },
        'repeated',
      ],
    },
  },
  RunPodSandbox: { request: { config: [1, podConfig] }, response: pod },
  PodSandboxStatus: { request: pod, response: { status: [1, podStatus] } },
  StopPodSandbox: { request: pod, response: {} },
  RemovePodSandbox: { request: pod, response: {} },
  CreateContainer: {
    request: { ...pod, config: [2, containerConfig], sandboxConfig: [3, podConfig] },
    response: container,
  },
  StartContainer: { request: container, response: {} },
  PullImage: {
    service: 'ImageService',
    request: { image: [1, image] },
    response: { imageRef: [1, 'string'] },
  },
  ImageStatus: {
    service: 'ImageService',
    request: { image: [1, image] },
    response: { image: [1, { id: [1, 'string'] }] },
  },
  RemoveImage: { service: 'ImageService', request: { image: [1, image] }, response: {} },
};

/** Time limit of a call: long enough to start a pod on a busy machine. */
const CALL_TIMEOUT_MS = 120_000;

/**
 * Makes one call and returns the response message.
 * @param socket - Path of the CRI socket.
 * @param method - Name of the call, such as `RunPodSandbox`.
 * @param message - Request message; its fields must be in the schema.
 * @throws Error with the message of the runtime, or when the runtime does not answer.
 */
export async function callCri(socket, method, message) {
  const { service = 'RuntimeService', request, response } = calls[method];
  const session = connect('http://localhost', { createConnection: () => connectSocket(socket) });
  try {
    return decode(
      response,
      await callUnary(session, `/runtime.v1.${service}/${method}`, encode(request, message)),
    );
  } catch (reason) {
    throw new Error(`${method} on ${socket}: ${reason.message}`, { cause: reason });
  } finally {
    session.destroy();
  }
}

/** Makes one unary gRPC call: a byte for "not compressed", the length, the message. */
function callUnary(session, path, message) {
  return new Promise((resolve, reject) => {
    session.once('error', reject);
    const call = session.request({
      ':method': 'POST',
      ':path': path,
      'content-type': 'application/grpc',
      te: 'trailers',
    });
    let trailers = {};
    const chunks = [];
    const recordHeaders = (headers) => (trailers = { ...trailers, ...headers });
    call.on('response', recordHeaders).on('trailers', recordHeaders);
    call.on('data', (chunk) => chunks.push(chunk));
    call.once('error', reject);
    call.once('close', () => {
      if (trailers['grpc-status'] === '0') return resolve(Buffer.concat(chunks).subarray(5));
      reject(
        new Error(
          decodeURIComponent(trailers['grpc-message'] ?? 'the connection ended without an answer'),
        ),
      );
    });
    call.setTimeout(CALL_TIMEOUT_MS, () =>
      call.destroy(new Error(`no answer within ${CALL_TIMEOUT_MS / 1000} s`)),
    );
    const head = Buffer.alloc(5);
    head.writeUInt32BE(message.length, 1);
    call.end(Buffer.concat([head, message]));
  });
}
