/** Records of the store. Only the coordinator uses them; they are not part of the published API. */
export * from './gen/cloudless/store/records_pb.js';
